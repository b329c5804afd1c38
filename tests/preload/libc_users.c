/* libc_users.c - blocks that libc allocates inside and the program frees, resizes or hands back.
 *
 * Planted defect it was seen to catch: a free that does not know the blocks of libc's own calls
 * (malloc interposed, calloc and realloc not).
 */
#include "served.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <iconv.h>
#include <locale.h>
#include <malloc.h>
#include <regex.h>
#include <search.h>
#include <wchar.h>

static FILE *open_scratch(void) {
    FILE *file = tmpfile();
    CHECK(file != NULL);
    return file;
}

/* getline grows the block that it was given with realloc. */
TEST(getline_and_getdelim) {
    FILE *file = open_scratch();
    for (int line = 0; line < 300; line++) {
        for (int i = 0; i < line * 20; i++) fputc('a' + line % 26, file);
        fputc('\n', file);
    }
    rewind(file);
    char *text = NULL;
    size_t size = 0;
    for (int line = 0; line < 300; line++) {
        ssize_t length = line % 2 ? getline(&text, &size, file) : getdelim(&text, &size, '\n', file);
        CHECK_EQ(length, line * 20 + 1);
        CHECK(malloc_usable_size(text) >= (size_t)length + 1);
        CHECK(line == 0 || text[length - 2] == 'a' + line % 26);
        if (line % 50 == 49) { /* a block of the program's own, too small */
            free(text);
            text = malloc(1);
            size = 1;
        }
    }
    free(text);
    fclose(file);
}

TEST(strings) {
    for (int length = 0; length < 100000; length = length * 3 + 1) {
        char *text = NULL, *copy, *part;
        CHECK_EQ(asprintf(&text, "%0*d", length + 1, 7), length + 1);
        CHECK((copy = strdup(text)) != NULL && strcmp(copy, text) == 0);
        CHECK((part = strndup(text, (size_t)length / 2)) != NULL);
        CHECK_EQ(strlen(part), length / 2);
        copy = realloc(copy, (size_t)length * 2 + 10);
        CHECK(copy != NULL && strcmp(copy, text) == 0);
        free(text);
        free(copy);
        free(part);
    }
    wchar_t *wide = wcsdup(L"wide");
    CHECK(wide != NULL && wcscmp(wide, L"wide") == 0);
    free(wide);
}

static int is_any(const struct dirent *entry) { return entry->d_name[0] != '\0'; }

TEST(files_and_directories) {
    char *path = realpath("/proc/self/../self/.", NULL), *here = getcwd(NULL, 0);
    CHECK(path != NULL && here != NULL);
    free(path);
    free(here);
    for (int round = 0; round < 20; round++) {
        DIR *directory = opendir("/usr/lib");
        CHECK(directory != NULL);
        while (readdir(directory) != NULL) continue;
        closedir(directory);
        struct dirent **entries = NULL;
        int count = scandir("/etc", &entries, is_any, alphasort);
        CHECK(count > 2);
        while (count-- > 0) free(entries[count]);
        free(entries);
        glob_t matches;
        CHECK_EQ(glob("/etc/*", 0, NULL, &matches), 0);
        globfree(&matches);
    }
}

TEST(streams) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    CHECK(file != NULL);
    for (int i = 0; i < 20000; i++) fprintf(file, "%d ", i);
    fclose(file);
    CHECK(strlen(text) == size);
    text = realloc(text, size * 2);
    CHECK(text != NULL);
    file = fmemopen(text, size, "r");
    int number = -1, found = -1;
    while (fscanf(file, "%d", &found) == 1) CHECK_EQ(found, ++number);
    CHECK_EQ(number, 19999);
    fclose(file);
    free(text);
    file = open_scratch();
    char *buffer = malloc(50000); /* a stream's own buffer, freed after it */
    CHECK_EQ(setvbuf(file, buffer, _IOFBF, 50000), 0);
    for (int i = 0; i < 10000; i++) fprintf(file, "%d\n", i);
    fclose(file);
    free(buffer);
#ifdef __GLIBC__ /* the shell has glibc, and would be handed another's preload */
    file = popen("echo from a child", "r");
    text = NULL;
    size = 0;
    CHECK(file != NULL && getline(&text, &size, file) == 13);
    pclose(file);
    free(text);
#endif
}

TEST(locales_and_conversions) {
    static const char *const names[] = {"C", "C.UTF-8", "en_US.UTF-8", "no_such_locale", ""};
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            setlocale(LC_ALL, names[i]);
            locale_t locale = newlocale(LC_ALL_MASK, names[i], (locale_t)0);
            if (locale) freelocale(locale);
        }
        iconv_t conversion = iconv_open("UTF-16", "ISO-8859-1"); /* loads a module */
        if (conversion != (iconv_t)-1) iconv_close(conversion);
    }
    setlocale(LC_ALL, "C");
}

static int compare_ints(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

TEST(algorithms) {
    enum { COUNT = 100000 };
    int *numbers = malloc(COUNT * sizeof *numbers);
    CHECK(numbers != NULL);
    for (int i = 0; i < COUNT; i++) numbers[i] = (i * 7919) % COUNT;
    qsort(numbers, COUNT, sizeof *numbers, compare_ints); /* merges in a block of its own */
    for (int i = 0; i < COUNT; i++) CHECK_AT(numbers[i] == i, i);
    void *root = NULL;
    for (int i = 0; i < 5000; i++) CHECK(tsearch(&numbers[(i * 31) % COUNT], &root, compare_ints));
    tdestroy(root, (void (*)(void *))(uintptr_t)&is_any);
    free(numbers);
    regex_t expression;
    CHECK_EQ(regcomp(&expression, "^(a|b)*c{2,30}[d-z]+(x|yy|zzz){1,9}$", REG_EXTENDED), 0);
    CHECK_EQ(regexec(&expression, "ababccdefyy", 0, NULL, 0), 0);
    regfree(&expression);
}

TEST(environment_and_loader) {
    char name[32];
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "VARIABLE_%d", i);
        CHECK_EQ(setenv(name, name, 1), 0);
    }
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "VARIABLE_%d", i);
        CHECK(strcmp(getenv(name), name) == 0);
        unsetenv(name);
    }
    for (int i = 0; i < 50; i++) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        CHECK(library == NULL || dlsym(library, "cos") != NULL);
        CHECK(dlopen("no_such_library.so", RTLD_NOW) == NULL);
        CHECK(dlerror() != NULL);
        if (library) dlclose(library);
    }
}

/* More keys than fit beside the thread's descriptor: libc callocs the rest and frees it at the end
 * of the thread, after the allocator's own destructor ran. */
enum { KEYS = 100 };
static pthread_key_t keys[KEYS];

static void *set_keys(void *unused) {
    for (size_t i = 0; i < KEYS; i++) {
        void *value = malloc(i + 1);
        CHECK(value != NULL);
        CHECK_EQ(pthread_setspecific(keys[i], value), 0);
    }
    return unused;
}

TEST(more_than_32_thread_keys) {
    for (size_t i = 0; i < KEYS; i++) CHECK_EQ(pthread_key_create(&keys[i], free), 0);
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, set_keys, NULL), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
    }
    for (size_t i = 0; i < KEYS; i++) pthread_key_delete(keys[i]);
}
