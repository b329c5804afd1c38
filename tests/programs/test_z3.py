"""z3: a proof by cases, arithmetic with bits, and integers with a model."""

from trial import Side, Trial

HOLES = 7
QUEENS = 12


def pigeons() -> str:
    """One more pigeon than there are holes: there is no way, and showing it takes many cases."""
    names = [[f"p{pigeon}h{hole}" for hole in range(HOLES)] for pigeon in range(HOLES + 1)]
    lines = [f"(declare-const {name} Bool)" for row in names for name in row]
    lines += [f"(assert (or {' '.join(row)}))" for row in names]
    for hole in range(HOLES):
        column = [row[hole] for row in names]
        lines += [f"(assert (not (and {a} {b})))" for i, a in enumerate(column) for b in column[:i]]
    return "\n".join([*lines, "(check-sat)"])


PRODUCT = 7919 * 6343
FACTORS = f"""
(declare-const a (_ BitVec 32)) (declare-const b (_ BitVec 32))
(assert (= (bvmul a b) #x{PRODUCT:08x})) (assert (bvugt a #x00000001)) (assert (bvult a #x00010000))
(assert (bvugt b #x00000001)) (assert (bvult b #x00010000)) (assert (bvule a b))
(check-sat) (eval (bv2nat a)) (eval (bv2nat b))
"""


def queens() -> str:
    rows = [f"q{n}" for n in range(QUEENS)]
    lines = [f"(declare-const {q} Int) (assert (<= 1 {q} {QUEENS}))" for q in rows]
    lines += [f"(assert (distinct {' '.join(rows)}))"]
    for sign in "+-":
        lines.append(f"(assert (distinct {' '.join(f'({sign} {q} {n})' for n, q in enumerate(rows))}))")
    return "\n".join([*lines, "(check-sat)", *(f"(eval {q})" for q in rows)])


def test_z3(trial: Trial) -> None:
    """Pigeons in holes (none), factors by bit vectors, queens by integers: the same models"""
    z3 = trial.program("z3", "--version")

    def work(side: Side) -> list[list[str]]:
        return [side.run(z3, "-in", stdin=question).split() for question in (pigeons(), FACTORS, queens())]

    cases, (found, *factors), (placed, *columns) = trial.compare(work)
    assert (cases, found, placed) == (["unsat"], "sat", "sat")
    a, b = map(int, factors)
    assert a * b == PRODUCT
    board = list(map(int, columns))
    for sums in (board, [q + n for n, q in enumerate(board)], [q - n for n, q in enumerate(board)]):
        assert len(set(sums)) == QUEENS
