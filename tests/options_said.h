/* options_said.h - reads options from an environment of the test's, and keeps what was said about it. */
#ifndef HAK_TESTS_OPTIONS_SAID_H
#define HAK_TESTS_OPTIONS_SAID_H

#include "blocks.h" /* first: it says _GNU_SOURCE */

#include "api/options.h"

#include <sys/mman.h>

static char said[1 << 16];

/* Reads ENVIRONMENT and keeps in `said` what that wrote to the message descriptor. */
CHECK_UNUSED static struct hak_options read_with_program(const char *const *environment, const char *program, bool secure) {
    int file = memfd_create("said", MFD_CLOEXEC);
    int saved = dup(STDERR_FILENO);
    CHECK(file >= 0 && saved >= 0);
    fflush(stderr);
    dup2(file, STDERR_FILENO);
    struct hak_options options;
    memset(&options, 0xA5, sizeof options);
    options_read(&options, environment, program, secure);
    dup2(saved, STDERR_FILENO);
    ssize_t length = pread(file, said, sizeof said - 1, 0);
    said[length > 0 ? length : 0] = 0;
    close(file);
    close(saved);
    return options;
}

CHECK_UNUSED static struct hak_options read_options(const char *const *environment, bool secure) {
    return read_with_program(environment, NULL, secure);
}

#define READ(...) read_options((const char *const[]){__VA_ARGS__, NULL}, false)

CHECK_UNUSED static size_t lines_said(void) {
    size_t lines = 0;
    for (const char *at = said; *at; at++) lines += *at == '\n';
    return lines;
}

/* One line, as os_message writes it, and TEXT in it. */
CHECK_UNUSED static bool said_once(const char *text) {
    return lines_said() == 1 && strncmp(said, "hakmem: ", 8) == 0 && strstr(said, text) != NULL;
}

#endif
