"""Debian's bash is built without the malloc that it brings along."""

from trial import Side, Trial

SCRIPT = r"""
set -e
for ((i = 0; i < 20000; i++)); do a[i]="item $i"; done
declare -A map
for ((i = 0; i < 2000; i++)); do map[key$i]=$((i * i)); done
text=$(printf '%s,' "${a[@]}")
echo ${#a[@]} "${a[19999]}" ${map[key1999]} ${#text} $(echo "$(echo nested)")
fold() { local n=$1; if ((n > 1)); then fold $((n - 1)); fi; printf '%s ' "${a[n]//item/$n}"; }
fold 300 | cksum
for word in "${!map[@]}"; do echo "$word ${map[$word]}"; done | sort -t ' ' -k 2n | sed 's/key//' | cksum
while read -r -a fields; do
    if [[ ${fields[1]} =~ ^([0-9]+)7$ ]]; then sum=$((sum + BASH_REMATCH[1])); fi
done <<<"$(printf 'x %s\n' {1..3000})"
echo $sum
"""


def test_bash(trial: Trial) -> None:
    """Arrays, maps, recursion, pipelines and subshells"""
    bash = trial.program("bash", "--version")
    lines = trial.compare(lambda side: side.run(bash, "-c", SCRIPT)).splitlines()
    assert lines[0] == "20000 item 19999 3996001 208890 nested"
    assert lines[3] == str(sum(range(300)))


def test_children(trial: Trial) -> None:
    """A status handed through two shells; both are served"""
    bash = trial.program("bash", "--version")

    def work(side: Side) -> str:
        output = side.run(bash, "-c", f"{bash} -c 'echo inner'; exit 3", statuses=[3])
        assert side.build is None or side.served["bash"] == 2
        return output

    assert trial.compare(work) == "inner\n"
