/* exit.pml - a thread ends and its heap is parked, another takes its slab from there and ends later, and two give the slab's
 * blocks back meanwhile.
 *
 * The protocol of src/heap/remote.c and thread.c, step by step, for Spin: in sequential consistency, which the explorer does
 * not need, but for whole lives of threads, whose loops it cannot follow to their end. Names are those of the code. There is one
 * slab, of two blocks, so an inbox holds it or is empty.
 *
 * Safety: when all threads have ended no inbox holds anything, and every block is where the slab's owner finds it.
 * Liveness (found): every block that is given back is found, as long as every thread gets to run, and the lock that it waits for. */

#define A 0       /* the heap of the thread that ends */
#define B 1       /* of the one that adopts */
#define COMMONS 2 /* of no thread: dead from the start */
#define HEAPS 3
#define NONE 3
#define BLOCKS 2

bit lock[HEAPS], inbox[HEAPS], undrained[HEAPS];
bit dead[HEAPS];
byte waiting[HEAPS];
byte undrained_heaps = NONE, next_undrained[HEAPS];
byte owner = A;       /* of the slab; NONE: it was released */
bit queued;
byte remote_bits;     /* blocks given back that the owner has not found */
byte free_blocks;     /* that it has */
byte ended;

/* Who goes round lets those go first who wait: else it could take a lock anew whenever they look. */
inline take(which) {
    if
    :: goes_round -> atomic { lock[which] == 0 && waiting[which] == 0 -> lock[which] = 1 }
    :: else ->
        waiting[which]++;
        atomic { lock[which] == 0 -> lock[which] = 1; waiting[which]-- }
    fi
}
inline drop(which) { lock[which] = 0 }

/* exchange: one step */
inline exchange(variable, value) { d_step { was = variable; variable = value } }

inline mark_undrained(heap) {
    exchange(undrained[heap], 1);
    if
    :: was == 1
    :: else ->
        head = undrained_heaps;
        do
        :: next_undrained[heap] = head;
           atomic { /* compare-exchange: the head, if it is another */
               if
               :: undrained_heaps == head -> undrained_heaps = heap; break
               :: else -> head = undrained_heaps
               fi
           }
        od
    fi
}

inline queue() {
    exchange(queued, 1);
    if
    :: was == 1
    :: else ->
        to = owner;
        if
        :: to == NONE -> to = COMMONS
        :: else
        fi;
        inbox[to] = 1; /* push */
        if
        :: dead[to] == 1 || to == COMMONS -> mark_undrained(to)
        :: else
        fi
    fi
}

inline slab_drain() {
    d_step { free_blocks = free_blocks + remote_bits; remote_bits = 0 };
    if
    :: free_blocks == BLOCKS -> owner = NONE /* bin_settle: released */
    :: else
    fi
}

inline remote_drain(heap) {
    exchange(inbox[heap], 0);
    if
    :: was == 1 ->
        queued = 0;
        to = owner;
        if
        :: to == heap -> slab_drain()
        :: to != heap && to != NONE -> queue()
        :: else
        fi
    :: else
    fi
}

inline settle() {
    do
    :: undrained_heaps == NONE -> break
    :: else ->
        d_step { marked = undrained_heaps; undrained_heaps = NONE };
        do
        :: marked == NONE -> break
        :: else ->
            next = next_undrained[marked];
            undrained[marked] = 0;
            take(marked);
            remote_drain(marked);
            drop(marked);
            marked = next
        od
    od
}

inline park(heap) {
    take(heap);
    dead[heap] = 1;
    remote_drain(heap); /* the last */
    drop(heap);
    settle()
}

/* Only what is free is worth it; or all, at a visit. */
inline salvage(heap) {
    take(heap);
    if
    :: dead[heap] == 1 ->
        take(COMMONS); /* bin_hand_over */
        if
        :: owner == heap -> owner = COMMONS
        :: else
        fi;
        drop(COMMONS);
        remote_drain(heap)
    :: else
    fi;
    drop(heap);
    settle()
}

/* A slow path of the adopter. */
inline refill(heap) {
    take(heap);
    if
    :: inbox[heap] == 1 -> remote_drain(heap)
    :: else
    fi;
    take(COMMONS); /* bin_adopt */
    if
    :: owner == COMMONS && free_blocks > 0 -> owner = heap
    :: else
    fi;
    drop(COMMONS);
    drop(heap);
    settle()
}

active proctype owner_thread() {
    bit was, goes_round; byte to, head, marked, next;
    park(A);
    ended++
}

active [2] proctype freer() {
    bit was, goes_round; byte to, head, marked, next;
    remote_bits++; /* give_bits: one step */
    queue();
    settle();
    ended++
}

/* Goes on until the others have ended, and then once more or not. */
active proctype adopter() {
    bit was, goes_round = 1; byte to, head, marked, next;
    do
    :: refill(B);
       salvage(A)
    :: ended == 3 -> break
    od;
    goes_round = 0;
    park(B);
    ended++
}

init {
    ended == 4;
    assert(inbox[A] == 0 && inbox[B] == 0 && inbox[COMMONS] == 0);
    assert(remote_bits == 0 && free_blocks == BLOCKS && owner == NONE);
    assert(undrained_heaps == NONE && queued == 0);
    assert(undrained[A] == 0 && undrained[B] == 0 && undrained[COMMONS] == 0)
}

ltl found { [] (remote_bits > 0 -> <> (remote_bits == 0)) }
