/* litmus.c - the explorer's own tests: small programs whose outcomes under RC11 without load buffering are known, and that
 * every one of them is found. Names and outcomes as in Alglave et al. (Herding cats, 2014), Batty et al. (2011) and
 * Lahav et al. (Repairing sequential consistency in C/C++11, 2017). */
#include "litmus.h"

/* ---- SB: two writes, then each looks for the other's ------------------------------------------------------ */

#define SB(name, w, between, r_, expected)                                                                             \
    DO(name##_a, W(x, 1, w); between; R(0, y, r_))                                                                    \
    DO(name##_b, W(y, 1, w); between; R(1, x, r_))                                                                    \
    EXPLORE(name, .threads = {name##_a, name##_b}, .check = say_2, .outcomes = expected)

SB(sb_relaxed, RLX, (void)0, RLX, "00 01 10 11");
SB(sb_acquire_release, REL, (void)0, ACQ, "00 01 10 11");
SB(sb_seq_cst, SC, (void)0, SC, "01 10 11");
SB(sb_seq_cst_fences, RLX, F(SC), RLX, "01 10 11");
SB(sb_weak_fences, RLX, F(AR), RLX, "00 01 10 11");
SB(sb_half_seq_cst, SC, (void)0, ACQ, "00 01 10 11");

DO(sb_rmw_a, atomic_exchange_explicit(&x, 1, AR); R(0, y, RLX))
DO(sb_rmw_b, atomic_exchange_explicit(&y, 1, AR); R(1, x, RLX))
EXPLORE(sb_exchange, .threads = {sb_rmw_a, sb_rmw_b}, .check = say_2, .outcomes = "00 01 10 11");

/* ---- MP: a message, and a flag that says so ----------------------------------------------------------------- */

#define MP(name, w, before_flag, r_, after_flag, expected)                                                             \
    DO(name##_a, W(x, 1, RLX); before_flag; W(y, 1, w))                                                               \
    DO(name##_b, R(0, y, r_); after_flag; R(1, x, RLX))                                                               \
    EXPLORE(name, .threads = {name##_a, name##_b}, .check = say_2, .outcomes = expected)

MP(mp_relaxed, RLX, (void)0, RLX, (void)0, "00 01 10 11");
MP(mp_release_only, REL, (void)0, RLX, (void)0, "00 01 10 11");
MP(mp_acquire_only, RLX, (void)0, ACQ, (void)0, "00 01 10 11");
MP(mp_release_acquire, REL, (void)0, ACQ, (void)0, "00 01 11");
MP(mp_fences, RLX, F(REL), RLX, F(ACQ), "00 01 11");
MP(mp_release_and_fence, REL, (void)0, RLX, F(ACQ), "00 01 11");
MP(mp_fence_and_acquire, RLX, F(REL), ACQ, (void)0, "00 01 11");
MP(mp_seq_cst_flag_only, SC, (void)0, SC, (void)0, "00 01 11");

/* The flag passes through another thread's read-modify-write, which carries the release on, relaxed as it is. */
DO(rs_a, W(x, 1, RLX); W(y, 1, REL))
DO(rs_b, atomic_fetch_add_explicit(&y, 1, RLX))
DO(rs_c, R(0, y, ACQ); R(1, x, RLX))
EXPLORE(release_sequence, .threads = {rs_a, rs_b, rs_c}, .check = say_2, .outcomes = "00 01 10 11 21");
DO(rs_only_two, if (r[0] == 2) explore_outcome("%d", r[1]))
EXPLORE(release_sequence_second, .threads = {rs_a, rs_b, rs_c}, .check = rs_only_two, .outcomes = "1");

/* A relaxed write of the same thread does not carry it on: C++20, not C11. */
DO(rs_broken_a, W(x, 1, RLX); W(y, 1, REL); W(y, 2, RLX))
EXPLORE(release_sequence_of_writes, .threads = {rs_broken_a, rs_c}, .check = say_2, .outcomes = "00 01 11 20 21");

/* ---- LB: each reads, then writes for the other -------------------------------------------------------------- */

DO(lb_a, R(0, x, RLX); W(y, 1, RLX))
DO(lb_b, R(1, y, RLX); W(x, 1, RLX))
EXPLORE(lb_is_not_in_the_model, .threads = {lb_a, lb_b}, .check = say_2, .outcomes = "00 01 10");

/* ---- coherence ---------------------------------------------------------------------------------------------- */

DO(write_1, W(x, 1, RLX))
DO(write_2, W(x, 2, RLX))
DO(read_twice, R(0, x, RLX); R(1, x, RLX))
DO(read_twice_more, R(2, x, RLX); R(3, x, RLX))
EXPLORE(corr, .threads = {write_1, read_twice}, .check = say_2, .outcomes = "00 01 11");
EXPLORE(corr_two_writers, .threads = {write_1, write_2, read_twice}, .check = say_2,
        .outcomes = "00 01 02 11 12 21 22");
DO(corr_disagree, if (r[0] != 0 && r[2] != 0 && r[0] != r[1] && r[2] != r[3]) explore_outcome("%d%d%d%d", r[0], r[1], r[2], r[3]))
EXPLORE(corr_readers_agree, .threads = {write_1, write_2, read_twice, read_twice_more}, .check = corr_disagree,
        .outcomes = "1212 2121");
DO(write_1_2, W(x, 1, RLX); W(x, 2, RLX))
EXPLORE(coww, .threads = {write_1_2}, .check = say_x, .outcomes = "2");
DO(corw_a, R(0, x, RLX); W(x, 1, RLX))
EXPLORE(corw, .threads = {corw_a}, .check = say_1, .outcomes = "0");
DO(cowr_a, W(x, 1, RLX); R(0, x, RLX))
DO(cowr_check, explore_outcome("%d%d", r[0], last(&x)))
EXPLORE(cowr, .threads = {cowr_a, write_2}, .check = cowr_check, .outcomes = "11 12 22");

/* ---- 2+2W: each writes both, in opposite orders ------------------------------------------------------------- */

#define WW(name, order, between, expected)                                                                             \
    DO(name##_a, W(x, 1, order); between; W(y, 2, order))                                                             \
    DO(name##_b, W(y, 1, order); between; W(x, 2, order))                                                             \
    EXPLORE(name, .threads = {name##_a, name##_b}, .check = say_xy, .outcomes = expected)

WW(ww_relaxed, RLX, (void)0, "11 12 21 22");
WW(ww_release, REL, (void)0, "11 12 21 22");
WW(ww_seq_cst, SC, (void)0, "12 21 22");
WW(ww_fences, RLX, F(SC), "12 21 22");

/* S, R: a write against a write, and a read */
DO(s_a, W(x, 2, RLX); W(y, 1, REL))
DO(s_b, R(0, y, ACQ); W(x, 1, RLX))
DO(s_check, explore_outcome("%d%d", r[0], last(&x)))
EXPLORE(s_release_acquire, .threads = {s_a, s_b}, .check = s_check, .outcomes = "01 02 11");
DO(r_a, W(x, 1, SC); W(y, 1, SC))
DO(r_b, W(y, 2, SC); R(0, x, SC))
DO(r_check, explore_outcome("%d%d", last(&y), r[0]))
EXPLORE(r_seq_cst, .threads = {r_a, r_b}, .check = r_check, .outcomes = "10 11 21");

/* ---- IRIW: two readers, and in which order they see two writes ---------------------------------------------- */

#define IRIW(name, w, r_, between, expected)                                                                           \
    DO(name##_a, W(x, 1, w))                                                                                          \
    DO(name##_b, W(y, 1, w))                                                                                          \
    DO(name##_c, R(0, x, r_); between; R(1, y, r_))                                                                   \
    DO(name##_d, R(2, y, r_); between; R(3, x, r_))                                                                   \
    EXPLORE(name, .threads = {name##_a, name##_b, name##_c, name##_d}, .check = say_4, .outcomes = expected)

#define ALL_BUT_1010 "0000 0001 0010 0011 0100 0101 0110 0111 1000 1001 1011 1100 1101 1110 1111"
IRIW(iriw_relaxed, RLX, RLX, (void)0, "0000 0001 0010 0011 0100 0101 0110 0111 1000 1001 1010 1011 1100 1101 1110 1111");
IRIW(iriw_acquire, REL, ACQ, (void)0, "0000 0001 0010 0011 0100 0101 0110 0111 1000 1001 1010 1011 1100 1101 1110 1111");
IRIW(iriw_seq_cst, SC, SC, (void)0, ALL_BUT_1010);
IRIW(iriw_fences, RLX, RLX, F(SC), ALL_BUT_1010);

/* ---- WRC, ISA2: what one learned from another, a third learns ------------------------------------------------ */

DO(wrc_b, R(0, x, ACQ); W(y, r[0], REL))
DO(wrc_c, R(1, y, ACQ); R(2, x, RLX))
DO(wrc_check, if (r[0] == 1 && r[1] == 1) explore_outcome("%d", r[2]))
DO(write_1_release, W(x, 1, REL))
EXPLORE(wrc, .threads = {write_1_release, wrc_b, wrc_c}, .check = wrc_check, .outcomes = "1");
DO(wrc_weak_b, R(0, x, RLX); W(y, r[0], RLX))
DO(wrc_weak_c, R(1, y, RLX); R(2, x, RLX))
EXPLORE(wrc_relaxed, .threads = {write_1, wrc_weak_b, wrc_weak_c}, .check = wrc_check, .outcomes = "0 1");
DO(isa2_a, W(x, 1, RLX); W(y, 1, REL))
DO(isa2_b, R(0, y, ACQ); W(z, r[0], REL))
DO(isa2_c, R(1, z, ACQ); R(2, x, RLX))
EXPLORE(isa2, .threads = {isa2_a, isa2_b, isa2_c}, .check = wrc_check, .outcomes = "1");

/* RWC, W+RWC, Z6.U: where seq_cst accesses of RC11 are weaker than a total order of all events */
DO(rwc_b, R(0, x, RLX); F(SC); R(1, y, RLX))
DO(rwc_c, W(y, 1, RLX); F(SC); R(2, x, RLX))
DO(rwc_check, if (r[0] == 1 && r[1] == 0) explore_outcome("%d", r[2]))
EXPLORE(rwc_fences, .threads = {write_1, rwc_b, rwc_c}, .check = rwc_check, .outcomes = "1");
DO(z6u_a, W(x, 1, SC); W(y, 1, REL))
DO(z6u_b, r[0] = atomic_fetch_add_explicit(&y, 1, SC); R(1, y, RLX))
DO(z6u_c, W(y, 3, SC); R(2, x, SC))
DO(z6u_check, if (r[0] == 1 && r[1] == 3) explore_outcome("%d", r[2]))
EXPLORE(z6u, .threads = {z6u_a, z6u_b, z6u_c}, .check = z6u_check, .outcomes = "0 1"); /* 0: not in C11 as it was */

/* ---- read-modify-writes are one step ------------------------------------------------------------------------- */

DO(add_a, r[0] = atomic_fetch_add_explicit(&x, 1, RLX))
DO(add_b, r[1] = atomic_fetch_add_explicit(&x, 1, RLX))
DO(add_c, r[2] = atomic_fetch_add_explicit(&x, 1, RLX))
DO(add_check, explore_outcome("%d%d%d%d", r[0], r[1], r[2], last(&x)))
EXPLORE(rmw_atomicity, .threads = {add_a, add_b, add_c}, .check = add_check, .outcomes = "0123 0213 1023 1203 2013 2103");
DO(rmw_write, explore_outcome("%d%d", r[0], last(&x)))
DO(write_5, W(x, 5, RLX))
EXPLORE(rmw_and_write, .threads = {add_a, write_5}, .check = rmw_write, .outcomes = "05 56");

static void take(int place, int value, int order) {
    int expected = 0;
    r[place] = atomic_compare_exchange_strong_explicit(&x, &expected, value, order, RLX);
}
DO(cas_a, take(0, 1, RLX))
DO(cas_b, take(1, 2, RLX))
DO(cas_check, explore_outcome("%d%d%d", r[0], r[1], last(&x)))
EXPLORE(cas_one_wins, .threads = {cas_a, cas_b}, .check = cas_check, .outcomes = "012 101");

/* ---- locks and waiting ---------------------------------------------------------------------------------------- */

static _Atomic uint32_t lock_a;
static int plain, order_of[3], turns;

static void in_turn(void) {
    explore_lock_take(&lock_a);
    order_of[turns++] = (int)explore_self();
    explore_lock_drop(&lock_a);
}
DO(turns_check, explore_outcome("%d%d%d", order_of[0], order_of[1], order_of[2]))
EXPLORE(lock_every_order, .threads = {in_turn, in_turn, in_turn}, .check = turns_check,
        .outcomes = "012 021 102 120 201 210");
static int four[4], fours;
static void in_turn_of_four(void) {
    explore_lock_take(&lock_a);
    four[fours++] = (int)explore_self();
    explore_lock_drop(&lock_a);
}
DO(twice, in_turn_of_four(); in_turn_of_four())
DO(four_check, explore_outcome("%d%d%d%d", four[0], four[1], four[2], four[3]))
EXPLORE(lock_twice_each, .threads = {twice, twice}, .check = four_check, .outcomes = "0011 0101 0110 1001 1010 1100");

static _Atomic uint32_t flag;
DO(await_a, plain = 7; atomic_store_explicit(&flag, 1, REL))
DO(await_b, explore_await(&flag, 1); r[0] = plain)
EXPLORE(await_acquires, .threads = {await_a, await_b}, .check = say_1, .outcomes = "7");
EXPLORE(await_acquires_first, .threads = {await_b, await_a}, .check = say_1, .outcomes = "7");

/* ---- the kernel's barrier -------------------------------------------------------------------------------------- */

DO(barrier_a, W(x, 1, RLX); explore_barrier_others(); R(0, y, RLX))
DO(barrier_b, W(y, 1, RLX); R(1, x, RLX))
EXPLORE(sb_kernel_barrier, .threads = {barrier_a, barrier_b}, .check = say_2, .outcomes = "01 10 11");
DO(barrier_mp_a, W(x, 1, RLX); explore_barrier_others(); W(y, 1, RLX))
DO(barrier_mp_b, R(0, y, RLX); R(1, x, RLX))
/* Whoever waits for a lock is interrupted as well. */
DO(barrier_locked_a, explore_lock_take(&lock_a); W(x, 1, RLX); explore_barrier_others(); R(0, y, RLX); explore_lock_drop(&lock_a))
DO(barrier_locked_b, W(y, 1, RLX); R(1, x, RLX); explore_lock_take(&lock_a); explore_lock_drop(&lock_a))
EXPLORE(sb_kernel_barrier_locked, .threads = {barrier_locked_a, barrier_locked_b}, .check = say_2, .outcomes = "01 10 11");
EXPLORE(mp_kernel_barrier, .threads = {barrier_mp_a, barrier_mp_b}, .check = say_2, .outcomes = "00 01 11");
