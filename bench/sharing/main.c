/* main.c - `sharing LIBRARY WORKLOAD CORES OPS SEED [LINE_BYTES [TURN [ACCESS_NS]]]`: one run, and its counts as one
 * line of JSON.
 *
 * Addresses are those of the file that holds the code or variable, for addr2line and nm. */
#include "sharing.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRAM, LIBRARY, WORKLOAD, CORES, OPS, SEED, LINE_BYTES, TURN, ACCESS_NS, ARGUMENTS };

static _Noreturn void usage(const char *wrong) {
    fprintf(stderr, "sharing: %s\n", wrong);
    fprintf(stderr, "usage: sharing LIBRARY WORKLOAD CORES OPS SEED [LINE_BYTES [TURN [ACCESS_NS]]]\n");
    for (unsigned i = 0; i < workload_count; i++)
        fprintf(stderr, "  %-10s %s\n", workloads[i].name, workloads[i].about);
    exit(2);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most, const char *wrong) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value < least || value > most) usage(wrong);
    return value;
}

static const struct workload *workload_of(const char *name) {
    for (unsigned i = 0; i < workload_count; i++)
        if (strcmp(workloads[i].name, name) == 0) return &workloads[i];
    usage("there is no such workload");
}

/* The function of the library under hakmem's own name, or under libc's where it has none. */
static void *function_of(void *library, const char *own, const char *libc) {
    void *function = dlsym(library, own);
    if (function == NULL) function = dlsym(library, libc);
    if (function == NULL) {
        fprintf(stderr, "sharing: the library has no %s\n", libc);
        exit(2);
    }
    return function;
}

/* ---- the line of JSON ----------------------------------------------------------------------------- */

/* With a comma behind it: something always follows. */
static void print_number(const char *key, uint64_t value) { printf("\"%s\":%" PRIu64 ",", key, value); }

static void print_remote(const uint64_t *remote) {
    printf("\"remote\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", remote[0], remote[1], remote[2]);
}

static void print_entry(const struct counts *counted) {
    print_number("calls", counted->calls);
    print_number("accesses", counted->accesses);
    print_number("atomics", counted->atomics);
    print_number("contended", counted->contended);
    print_number("fences", counted->fences);
    print_number("transfers", counted->transfers);
    print_number("dirty", counted->dirty);
    print_number("upgrades", counted->upgrades);
    print_number("invalidations", counted->invalidations);
    print_number("cold", counted->cold);
    print_number("sleeps", counted->sleeps);
    print_remote(counted->remote);
}

static void print_counts(void) {
    printf("\"entries\":{");
    for (unsigned i = 0; i < ENTRIES; i++) {
        printf("%s\"%s\":{", i == 0 ? "" : ",", entry_names[i]);
        print_entry(&measured[i]);
        printf("}");
    }
    printf("}");
}

/* Null: in no file, or in another than the library. */
static void print_offset(const char *key, uintptr_t address, const void *library_base) {
    Dl_info info;
    if (address != 0 && dladdr((void *)address, &info) != 0 && info.dli_fbase == library_base)
        printf(",\"%s\":%" PRIuPTR, key, address - (uintptr_t)info.dli_fbase);
    else
        printf(",\"%s\":null", key);
}

struct printing {
    const void *library_base;
    bool comma;
};

static void print_place(const struct place *place, void *context) {
    struct printing *printing = context;
    printf("%s\n{\"entry\":\"%s\",\"object\":", printing->comma ? "," : "", entry_names[place->entry]);
    printing->comma = true;
    if (place->object != NULL)
        printf("\"%s\"", place->object);
    else
        printf("null");
    print_offset("variable", place->address, printing->library_base);
    print_offset("code", place->code, printing->library_base);
    printf(",");
    print_number("transfers", place->transfers);
    print_number("dirty", place->dirty);
    print_number("upgrades", place->upgrades);
    print_number("invalidations", place->invalidations);
    print_number("contended", place->contended);
    print_remote(place->remote);
    printf("}");
}

int main(int argc, char **argv) {
    if (argc < LINE_BYTES || argc > ARGUMENTS) usage("five to eight arguments are needed");
    const struct workload *workload = workload_of(argv[WORKLOAD]);
    struct schedule schedule = {.turn = 4, .access_ns = 1};
    schedule.cores = (unsigned)number(argv[CORES], 2, CORES_MAX, "CORES is 2 to 256");
    uint64_t ops = number(argv[OPS], 1, UINT64_C(1) << 32, "OPS is 1 to 2^32");
    schedule.seed = number(argv[SEED], 0, UINT64_MAX, "SEED is a whole number");
    unsigned line_bytes = 64;
    if (argc > LINE_BYTES) line_bytes = (unsigned)number(argv[LINE_BYTES], 64, 128, "LINE_BYTES is 64 or 128");
    if (line_bytes != 64 && line_bytes != 128) usage("LINE_BYTES is 64 or 128");
    if (argc > TURN) schedule.turn = (unsigned)number(argv[TURN], 1, 10000, "TURN is 1 to 10000");
    if (argc > ACCESS_NS) schedule.access_ns = number(argv[ACCESS_NS], 1, 1000000, "ACCESS_NS is 1 to 1000000");
    if (schedule.cores % 8 != 0) usage("CORES is a multiple of 8: they are dealt out to as many nodes");

    void *library = dlopen(argv[LIBRARY], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "sharing: %s\n", dlerror());
        return 2;
    }
    struct allocator allocator;
    *(void **)&allocator.malloc = function_of(library, "hak_malloc", "malloc");
    *(void **)&allocator.free = function_of(library, "hak_free", "free");
    const char *(*name)(uintptr_t) = NULL;
    *(void **)&name = dlsym(library, "sharing_name");
    fibres_find_thread_local(*(void **)&allocator.malloc);
    task = (struct task){&allocator, schedule.cores, ops, schedule.seed};
    lines_open(line_bytes, schedule.cores, name);
    if (!fibres_run(&schedule, workload->thread)) {
        fprintf(stderr, "sharing: the threads wait for what nobody does\n");
        return 1;
    }

    Dl_info info;
    dladdr(*(void **)&allocator.malloc, &info);
    printf("{\"workload\":\"%s\",\"seed\":\"%" PRIu64 "\",", workload->name, schedule.seed);
    print_number("cores", schedule.cores);
    print_number("line_bytes", line_bytes);
    print_number("turn", schedule.turn);
    print_number("access_ns", schedule.access_ns);
    print_number("operations", operations);
    print_counts();
    printf(",\"places\":[");
    lines_visit(print_place, &(struct printing){.library_base = info.dli_fbase});
    printf("]}\n");
    return 0;
}
