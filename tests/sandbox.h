/* sandbox.h - seccomp filters: lists of system calls that are refused with an error number, or that alone are allowed.
 */
#ifndef HAK_TESTS_SANDBOX_H
#define HAK_TESTS_SANDBOX_H

#include "child.h" /* first: it says _GNU_SOURCE */

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* One system call; or, with BITS, the call whose ARGUMENT holds any of them, or equals them if EXACTLY. */
struct sandbox_rule {
    int call;
    unsigned argument;
    uint32_t bits;
    bool exactly;
};

#define SANDBOX_RULES(rules) (rules), sizeof(rules) / sizeof(rules)[0]

enum { SANDBOX_MOST = 400 };
static struct sock_filter sandbox_filter[SANDBOX_MOST];
static unsigned short sandbox_length;

static inline void sandbox_add(uint16_t code, uint32_t value, uint8_t if_true, uint8_t if_false) {
    CHECK(sandbox_length < SANDBOX_MOST);
    sandbox_filter[sandbox_length++] = (struct sock_filter){code, if_true, if_false, value};
}

static inline void sandbox_load(size_t offset) {
    sandbox_add(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static inline void sandbox_return(uint32_t action) { sandbox_add(BPF_RET | BPF_K, action, 0, 0); }

/* The lower half of an argument is what holds flags, on the little-endian machines there are. */
static inline void sandbox_add_rule(const struct sandbox_rule *rule, uint32_t action) {
    const uint8_t skipped = rule->bits ? 4 : 1;
    sandbox_add(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)rule->call, 0, skipped);
    if (rule->bits) {
        sandbox_load(offsetof(struct seccomp_data, args) + rule->argument * sizeof(uint64_t));
        sandbox_add(BPF_JMP | (rule->exactly ? BPF_JEQ : BPF_JSET) | BPF_K, rule->bits, 0, 1);
    }
    sandbox_return(action);
    if (rule->bits) sandbox_load(offsetof(struct seccomp_data, nr));
}

/* For every thread of the process, and what it executes. Calls of the list end as LISTED says, the rest as OTHERS. */
static inline void sandbox_enter(const struct sandbox_rule *rules, size_t count, uint32_t listed,
                                 uint32_t others) {
    sandbox_length = 0;
    sandbox_load(offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) sandbox_add_rule(&rules[i], listed);
    sandbox_return(others);
    struct sock_fprog program = {sandbox_length, sandbox_filter};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
}

#define SANDBOX_REFUSE(error) (SECCOMP_RET_ERRNO | (uint32_t)(error))

static inline void sandbox_refuse(const struct sandbox_rule *rules, size_t count, int error) {
    sandbox_enter(rules, count, SANDBOX_REFUSE(error), SECCOMP_RET_ALLOW);
}

static inline void sandbox_allow_only(const struct sandbox_rule *rules, size_t count, int error) {
    sandbox_enter(rules, count, SECCOMP_RET_ALLOW, SANDBOX_REFUSE(error));
}

/* Ends a child whose filter kills it where a file is opened, which _exit does in the build that counts. */
__attribute__((noreturn)) static inline void sandbox_leave(void) {
    for (;;) syscall(SYS_exit_group, 0);
}

static inline bool sandbox_is_possible(void) {
    uint32_t action = SECCOMP_RET_ERRNO;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

#endif
