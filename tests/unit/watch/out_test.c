/* out_test.c - text on its way to a descriptor.
 *
 * Planted defects it was seen to catch: */
#include "watch/out.h"

#include "blocks.h"

#include <fcntl.h>
#include <sys/mman.h>

static char got[1 << 20];

/* What is written to a file by BODY. */
static const char *written(bool (*body)(int fd)) {
    int file = memfd_create("out", MFD_CLOEXEC);
    CHECK(file >= 0 && body(file));
    ssize_t length = pread(file, got, sizeof got - 1, 0);
    CHECK(length >= 0);
    got[length] = '\0';
    close(file);
    return got;
}

static bool print_much(int fd) {
    struct out out;
    out_begin(&out, fd);
    for (int i = 0; i < 10000; i++) out_print(&out, "%d,", i);
    return out_end(&out);
}

TEST(pieces_come_in_order_and_whole) {
    const char *at = written(print_much);
    for (int i = 0; i < 10000; i++) {
        char *end;
        CHECK_AT(strtol(at, &end, 10) == i && *end == ',', i);
        at = end + 1;
    }
    CHECK_EQ(*at, '\0');
}

static char long_text[3000];

static bool print_long(int fd) {
    struct out out;
    out_begin(&out, fd);
    for (int i = 0; i < 5; i++) out_print(&out, "%s", long_text);
    return out_end(&out);
}

TEST(much_at_once_is_cut) {
    for (size_t length = 990; length < 1010; length++) {
        memset(long_text, 'a', length);
        long_text[length] = '\0';
        CHECK_EQ(strlen(written(print_long)), 5 * (length < 1000 ? length : 1000));
    }
}

static bool quote(int fd) {
    struct out out;
    out_begin(&out, fd);
    out_quote(&out, "a \"b\" \\ \n\x7f\xc3 z");
    out_quote(&out, "");
    return out_end(&out);
}

TEST(quotes_are_those_of_json) { CHECK(strcmp(written(quote), "\"a \\\"b\\\" \\\\ ??? z\"\"\"") == 0); }

TEST(a_write_that_fails_is_told_at_the_end) {
    struct out out;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full < 0) SKIP("no /dev/full");
    out_begin(&out, full);
    for (int i = 0; i < 10000; i++) out_print(&out, "%d,", i);
    errno = 0;
    CHECK(!out_end(&out));
    CHECK_EQ(errno, ENOSPC);
    close(full);
    out_begin(&out, -1);
    out_print(&out, "x");
    errno = 0;
    CHECK(!out_end(&out));
    CHECK_EQ(errno, EBADF);
}
