"""A Go program with a part in C. Go's own objects have a heap of their own; what the C part and the run-time library's
C part take comes from malloc."""

from pathlib import Path

import pytest
from toolbox import cannot_run, run
from trial import Side, Suite, Trial

PROGRAM = r"""
package main

/*
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node { struct node *left, *right; char *word; long count; };

static void add(struct node **place, const char *word) {
    while (*place != NULL) {
        int order = strcmp(word, (*place)->word);
        if (order == 0) { (*place)->count++; return; }
        place = order < 0 ? &(*place)->left : &(*place)->right;
    }
    *place = calloc(1, sizeof **place);
    (*place)->word = strdup(word);
    (*place)->count = 1;
}
static long drop(struct node *node) {
    if (node == NULL) return 0;
    long count = node->count + drop(node->left) + drop(node->right);
    free(node->word);
    free(node);
    return count;
}
// Go ends without exit, and so without what is printed at exit.
static void tell(long words, long count) { printf("%ld %ld\n", words, count); exit(0); }
*/
import "C"

import (
	"sync"
	"unsafe"
)

func word(n uint32) string {
	letters := []byte("word-")
	for ; n > 0; n /= 26 {
		letters = append(letters, byte('a'+n%26))
	}
	return string(letters)
}

func main() {
	trees := make(chan *C.struct_node, 64)
	var makers, droppers sync.WaitGroup
	var lock sync.Mutex
	var total, words C.long
	for dropper := 0; dropper < 3; dropper++ {
		droppers.Add(1)
		go func() { // frees what another thread allocated
			defer droppers.Done()
			for tree := range trees {
				count := C.drop(tree)
				lock.Lock()
				total += count
				lock.Unlock()
			}
		}()
	}
	for maker := uint32(0); maker < 8; maker++ {
		makers.Add(1)
		go func(seed uint32) {
			defer makers.Done()
			for tree := 0; tree < 20; tree++ {
				var root *C.struct_node
				for n := uint32(0); n < 500; n++ {
					seed = seed*1664525 + 1013904223
					text := C.CString(word(seed >> 20))
					C.add(&root, text)
					C.free(unsafe.Pointer(text))
				}
				trees <- root
				lock.Lock()
				words += 500
				lock.Unlock()
			}
		}(maker)
	}
	makers.Wait()
	close(trees)
	droppers.Wait()
	C.tell(words, total)
}
"""


def test_go(trial: Trial) -> None:
    """Goroutines that allocate in C, and free in C what others allocated"""
    go = trial.program("go", "version")
    trial.note(
        "Go's objects have a heap of their own: hakmem serves the C parts; go itself is static and is not served"
    )

    def work(side: Side) -> str:
        (side.folder / "program.go").write_text(PROGRAM)
        done = run(go, "build", "-o", "program", "program.go", cwd=side.folder, timeout=300)
        assert done.returncode == 0, done.stderr
        return side.run(side.folder / "program")

    assert trial.compare(work) == "80000 80000\n"


@pytest.mark.soak
def test_go_suite(trial: Trial) -> None:
    """Its own suite for C parts: cmd/cgo/internal/test"""
    go = trial.program("go", "version")
    if run(go, "list", "cmd/cgo/internal/test").returncode != 0:
        cannot_run("needs Go's own tests of cgo, which come with Go 1.21 and newer")

    def work(side: Side) -> Suite:
        binary = side.folder / "cgo.test"
        built = run(go, "test", "-c", "-o", binary, "cmd/cgo/internal/test", timeout=900)
        assert built.returncode == 0, built.stderr
        folder = Path(run(go, "env", "GOROOT").stdout.strip()) / "src/cmd/cgo/internal/test"
        output = side.run(binary, "-test.v", cwd=folder, statuses=(0, 1), statistics=False)
        lines = [line.split()[:3] for line in output.splitlines() if line.startswith("--- ")]
        return Suite(len(lines), frozenset(name for _, word, name in lines if word == "FAIL:"))

    result = trial.compare(work)
    trial.note(result.told())
    assert result.ran > 50
