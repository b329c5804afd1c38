/* deepbind.c - a host and its plugin, opened with RTLD_DEEPBIND, allocate for each other.
 *
 *     deepbind give|take|keep malloc|strdup|realpath|asprintf|getline
 *
 *     give   the plugin allocates, the host frees
 *     take   the host allocates, the plugin frees
 *     keep   the plugin does both
 *
 * Started by tests/system/test_deepbind.py, which says how each must end.
 */
#define CHECK_NO_MAIN
#include "beside.h" /* first: it says _GNU_SOURCE */

#include "deepbind.h"

#ifndef RTLD_DEEPBIND /* musl binds nothing deeply */
#define RTLD_DEEPBIND 0
#endif

enum { ROUNDS = 200 };

int main(int argc, char **argv) {
    static const char *const names[] = {"malloc", "strdup", "realpath", "asprintf", "getline"};
    char path[PATH_MAX];
    int giver = 0;
    check_now.name = "deepbind";
    if (argc != 3) return 2;
    while (giver <= GIVE_GETLINE && strcmp(argv[2], names[giver]) != 0) giver++;
    if (giver > GIVE_GETLINE) return 2;
    path_beside(path, "compat", "deepbind_plugin.so");
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    CHECK(plugin != NULL);
    char *(*give)(enum giver) = FUNCTION(plugin, "plugin_give", char *(enum giver));
    void (*take)(char *) = FUNCTION(plugin, "plugin_take", void(char *));
    for (int round = 0; round < ROUNDS; round++) {
        char *block = strcmp(argv[1], "take") == 0 ? strdup("a block of the host") : give((enum giver)giver);
        CHECK(block != NULL && block[0] != '\0');
        if (strcmp(argv[1], "give") == 0)
            free(block);
        else
            take(block);
    }
    check_say("ok deepbind");
    return 0;
}
