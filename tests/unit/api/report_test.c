/* report_test.c - hak_version and hak_stats_print.
 *
 * Planted defects it was seen to catch: a version that is not the header's, statistics that go
 * nowhere, success reported for a closed descriptor.
 */
#include "blocks.h"

#ifndef TEST_AGAINST_LIBC

TEST(the_version_is_the_headers) {
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", HAKMEM_VERSION_MAJOR, HAKMEM_VERSION_MINOR,
             HAKMEM_VERSION_PATCH);
    CHECK(strcmp(hak_version(), expected) == 0);
}

TEST(statistics_are_lines_of_text) {
    static char text[60000];
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    void *block = hak_malloc(1000);
    errno = 4711;
    CHECK_EQ(hak_stats_print(ends[1]), 0);
    CHECK_EQ(errno, 4711);
    close(ends[1]);
    ssize_t length = 0, more;
    while ((more = read(ends[0], text + length, sizeof text - (size_t)length)) > 0) length += more;
    close(ends[0]);
    hak_free(block);
    CHECK(length > 100);
    CHECK(text[length - 1] == '\n');
    for (ssize_t i = 0; i < length; i++) CHECK_AT(text[i] != '\0', i);
}

TEST(statistics_to_a_closed_descriptor_fail) {
    errno = 0;
    CHECK_EQ(hak_stats_print(-1), -1);
    CHECK_EQ(errno, EBADF);
    errno = 0;
    CHECK_EQ(hak_stats_print(900), -1);
    CHECK_EQ(errno, EBADF);
}

#else

TEST(glibc_has_no_such_functions) { OMIT("tested under the hak_ names"); }

#endif
