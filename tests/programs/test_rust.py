"""A Rust program, whose allocator is malloc unless it asks for another, with a part in C."""

from toolbox import run
from trial import Side, Trial

C_PART = r"""
#include <stdio.h>
#include <stdlib.h>
char *describe(long number) {
    char *text = NULL;
    return asprintf(&text, "number %ld", number) < 0 ? NULL : text;
}
"""
PROGRAM = r"""
use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::os::raw::{c_char, c_long, c_void};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

extern "C" {
    fn describe(number: c_long) -> *mut c_char;
    fn free(block: *mut c_void);
}

fn described(number: i64) -> String {
    unsafe {
        let text = describe(number as c_long);
        let copy = CStr::from_ptr(text).to_str().unwrap().to_owned();
        free(text as *mut c_void);
        copy
    }
}

fn main() {
    let (sender, receiver) = mpsc::channel::<(i64, String)>();
    let shared = Arc::new(Mutex::new(HashMap::<i64, Vec<String>>::new()));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (sender, shared) = (sender.clone(), Arc::clone(&shared));
            thread::spawn(move || {
                for n in 0..20000 {
                    let text = described(worker * 20000 + n);
                    if n % 5 == 0 {
                        shared.lock().unwrap().entry(n % 97).or_default().push(text.clone());
                    }
                    sender.send((n, text)).unwrap(); // freed by the thread that receives
                }
            })
        })
        .collect();
    drop(sender);
    let mut tree = BTreeMap::<i64, Vec<String>>::new();
    for (n, text) in receiver {
        tree.entry(n).or_default().push(text);
    }
    for worker in workers {
        worker.join().unwrap();
    }
    let kept: usize = shared.lock().unwrap().values().map(Vec::len).sum();
    let mut words: Vec<String> = tree.into_values().flatten().collect();
    words.sort_by_key(|word| word[7..].parse::<i64>().unwrap());
    let length: usize = words.iter().map(String::len).sum();
    println!("{} {} {} {}", words.len(), kept, length, words[79999]);
}
"""


def test_rust(trial: Trial) -> None:
    """Threads, channels and maps, strings allocated in C and freed in Rust; the compiler too, if it uses malloc"""
    rustc, gcc = trial.program("rustc", "--version"), trial.program("gcc")
    real = run(rustc, "--print", "sysroot").stdout.strip() + "/bin/rustc"
    own_malloc = " T malloc\n" in run(trial.program("nm"), "-D", real).stdout
    if own_malloc:
        trial.note(
            "this rustc brings its own allocator and compiled without hakmem: only the program is served"
        )

    def work(side: Side) -> str:
        (side.folder / "part.c").write_text(C_PART)
        (side.folder / "program.rs").write_text(PROGRAM)
        side.run(gcc, "-D_GNU_SOURCE", "-O1", "-c", "part.c", "-o", "part.o")
        compile_line = [real, "-O", "-C", "link-arg=part.o", "program.rs"]
        if own_malloc:
            assert run(*compile_line, cwd=side.folder).returncode == 0
        else:
            side.run(*compile_line)
        return side.run(side.folder / "program")

    length = sum(len(f"number {n}") for n in range(80000))
    assert trial.compare(work) == f"80000 16000 {length} number 79999\n"
