"""The doctor on made-up machines: a folder with proc/ and sys/ in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hakmem_lab.sight.cgroup import Group, group_read
from hakmem_lab.sight.doctor import place_findings, processors_of, proof_findings
from hakmem_lab.sight.doctor_machine import group_findings, limit_findings, mapping_findings
from hakmem_lab.sight.findings import Finding, Level, fine, notice, ordered, problem
from hakmem_lab.sight.machine import FEATURES, machine_read
from hakmem_lab.sight.pressure import Pressure
from hakmem_lab.sight.process import SELF, Limit, Process

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max data size             unlimited            unlimited            bytes
Max locked memory         8388608              8388608              bytes
Max address space         {space:<20} unlimited            bytes
"""
FILES = {
    "proc/sys/kernel/osrelease": "6.1.0-13-amd64\n",
    "proc/sys/vm/overcommit_memory": "0\n",
    "proc/sys/vm/max_map_count": "65530\n",
    "proc/meminfo": "MemTotal: 8000 kB\nMemAvailable: 4000 kB\nCommitLimit: 5000 kB\nCommitted_AS: 1000 kB\n",
    "proc/pressure/memory": "some avg10=0.00 avg60=0.00 total=1\nfull avg10=0.00 avg60=0.00 total=1\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "proc/self/status": "Name:\tsh\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-3,8\n",
    "proc/self/cgroup": "0::/user.slice/a\n",
    "proc/self/limits": LIMITS.format(space="unlimited"),
    "sys/fs/cgroup/user.slice/a/memory.max": "max\n",
    "sys/fs/cgroup/user.slice/a/memory.current": "100\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files_write(tmp_path, FILES)
    return tmp_path


def files_write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def found(root: Path, what: str) -> Finding:
    (finding,) = [one for one in place_findings(root) if one.what == what]
    return finding


# ---- the machine ------------------------------------------------------------------------------------------


def test_a_machine_without_a_problem(root: Path) -> None:
    findings = list(place_findings(root))
    assert [one.level for one in findings].count(Level.PROBLEM) == 0
    assert found(root, "processors").value == "5"
    assert found(root, "transparent huge pages").level is Level.FINE


def test_features_follow_the_version(root: Path) -> None:
    files_write(root, {"proc/sys/kernel/osrelease": "5.10.0"})
    machine = machine_read(root)
    assert [one.name for one in FEATURES if machine.has(one)] == [
        "membarrier",
        "MADV_COLD",
        "MREMAP_DONTUNMAP",
    ]
    assert found(root, "MADV_POPULATE_WRITE").level is Level.NOTICE


@pytest.mark.parametrize(("features", "reports"), [("0110010110", True), ("0110100110", False), ("", False)])
def test_a_host_that_takes_free_memory_back_is_named(root: Path, features: str, reports: bool) -> None:
    files_write(root, {"sys/bus/virtio/drivers/virtio_balloon/virtio0/features": f"{features}\n"})
    seen = [one.level for one in place_findings(root) if one.what == "free page reporting"]
    assert seen == [Level.NOTICE] * reports


@pytest.mark.parametrize(
    ("state", "action", "pages_out"),
    [("on", "pageout", True), ("off", "pageout", False), ("on", "stat", False)],
)
def test_a_kernel_that_pages_out_what_rests_is_named(
    root: Path, state: str, action: str, pages_out: bool
) -> None:
    daemon = "sys/kernel/mm/damon/admin/kdamonds/0"
    files_write(
        root,
        {
            f"{daemon}/state": f"{state}\n",
            f"{daemon}/contexts/0/schemes/0/action": "stat\n",
            f"{daemon}/contexts/0/schemes/1/action": f"{action}\n",
        },
    )
    seen = [one.level for one in place_findings(root) if one.what == "DAMON"]
    assert seen == [Level.NOTICE] * pages_out


@pytest.mark.parametrize(
    ("file", "text", "what", "level"),
    [
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "[always] madvise never",
            "transparent huge pages",
            Level.NOTICE,
        ),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always madvise [never]",
            "transparent huge pages",
            Level.NOTICE,
        ),
        ("proc/sys/vm/overcommit_memory", "1", "vm.overcommit_memory", Level.FINE),
        ("proc/sys/vm/overcommit_memory", "2", "vm.overcommit_memory", Level.NOTICE),
        (
            "proc/meminfo",
            "MemTotal: 8000 kB\nMemAvailable: 100 kB\n",
            "memory available",
            Level.PROBLEM,
        ),
        (
            "proc/pressure/memory",
            "some avg10=20.00\nfull avg10=15.00\n",
            "memory pressure of the machine",
            Level.PROBLEM,
        ),
        (
            "proc/pressure/memory",
            "some avg10=20.00\nfull avg10=1.00\n",
            "memory pressure of the machine",
            Level.NOTICE,
        ),
        ("proc/self/limits", LIMITS.format(space="1073741824"), "RLIMIT_AS", Level.NOTICE),
    ],
)
def test_a_setting(root: Path, file: str, text: str, what: str, level: Level) -> None:
    files_write(root, {file: text})
    assert found(root, what).level is level


def test_strict_overcommit_that_is_used_up(root: Path) -> None:
    files_write(
        root,
        {
            "proc/sys/vm/overcommit_memory": "2",
            "proc/meminfo": "MemTotal: 8000 kB\nMemAvailable: 4000 kB\nCommitLimit: 5000 kB\nCommitted_AS: 4900 kB\n",
        },
    )
    assert found(root, "vm.overcommit_memory").level is Level.PROBLEM


def test_a_kernel_that_says_nothing(tmp_path: Path) -> None:
    """As in a sandbox: what is not known is not judged."""
    files_write(tmp_path, {name: FILES[name] for name in ("proc/self/status", "proc/self/limits")})
    findings = list(place_findings(tmp_path))
    assert not [one for one in findings if one.level is Level.PROBLEM]
    assert found(tmp_path, "control group").value == "none"


# ---- control groups -----------------------------------------------------------------------------------------


def group_of(root: Path) -> Group:
    group = group_read(Process(SELF, root / "proc"), root / "sys")
    assert group is not None
    return group


def test_the_tightest_limit_above_counts(root: Path) -> None:
    files_write(
        root,
        {
            "sys/fs/cgroup/user.slice/memory.max": "1000\n",
            "sys/fs/cgroup/user.slice/memory.current": "950\n",
            "sys/fs/cgroup/user.slice/a/memory.max": "5000\n",
            "sys/fs/cgroup/user.slice/a/cpu.max": "max 100000\n",
            "sys/fs/cgroup/user.slice/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/user.slice/a/memory.pressure": "some avg10=1.50\nfull avg10=0.50\n",
        },
    )
    group = group_of(root)
    assert (group.version, group.limit, group.current, group.processors) == (2, 1000, 950, 1.5)
    assert group.pressure == Pressure(1.5, 0.5)
    levels = {one.what: one.level for one in group_findings(group, 4)}
    assert levels["control group (version 2) memory limit"] is Level.PROBLEM
    assert levels["processors"] is Level.NOTICE


@pytest.mark.parametrize(
    ("files", "level"),
    [
        ({"sys/fs/cgroup/user.slice/a/memory.max": "1000\n"}, Level.FINE),
        ({"sys/fs/cgroup/user.slice/a/memory.high": "900\n"}, Level.FINE),
        ({"sys/fs/cgroup/user.slice/a/memory.stat": "shmem 800\nactive_file 5\n"}, Level.PROBLEM),
        ({"sys/fs/cgroup/user.slice/a/memory.stat": "active_file 5\nslab_reclaimable 800\n"}, Level.FINE),
        ({"sys/fs/cgroup/user.slice/a/memory.stat": "active_file 5\nslab 800\n"}, Level.PROBLEM),
    ],
)
def test_cached_files_go_first(root: Path, files: dict[str, str], level: Level) -> None:
    """The library does not count them, either. What lies in tmpfs is no cache."""
    group = {
        "sys/fs/cgroup/user.slice/a/memory.max": "1000\n",
        "sys/fs/cgroup/user.slice/a/memory.current": "950\n",
        "sys/fs/cgroup/user.slice/a/memory.stat": "anon 100\ninactive_file 750\nactive_file 50\nshmem 7\n",
    }
    files_write(root, group | files)
    found_here = [
        one for one in group_findings(group_of(root), 5) if "memory." in one.what or "limit" in one.what
    ]
    assert {one.level for one in found_here} == {level}
    assert all("cached files" in one.value for one in found_here)


def test_the_high_mark(root: Path) -> None:
    files_write(root, {"sys/fs/cgroup/user.slice/a/memory.high": "90\n"})
    levels = {one.what: one.level for one in group_findings(group_of(root), 5)}
    assert levels["control group (version 2) memory.high"] is Level.PROBLEM


@pytest.mark.parametrize(("marked", "above", "level"), [(900, 1000, Level.PROBLEM), (10, 1000, Level.FINE)])
def test_the_high_mark_is_held_against_its_own_group(
    root: Path, marked: int, above: int, level: Level
) -> None:
    """The limit is that of the group above, which has more in use."""
    files_write(
        root,
        {
            "sys/fs/cgroup/user.slice/memory.max": "5000\n",
            "sys/fs/cgroup/user.slice/memory.current": f"{above}\n",
            "sys/fs/cgroup/user.slice/a/memory.high": "500\n",
            "sys/fs/cgroup/user.slice/a/memory.current": f"{marked}\n",
        },
    )
    levels = {one.what: one.level for one in group_findings(group_of(root), 5)}
    assert levels["control group (version 2) memory.high"] is level
    assert levels["control group (version 2) memory limit"] is Level.FINE


def test_a_path_of_the_outside(root: Path) -> None:
    """Of a container without a namespace of its own for control groups."""
    files_write(
        root,
        {
            "proc/self/cgroup": "0::/docker/0123\n",
            "sys/fs/cgroup/memory.max": "2000\n",
            "sys/fs/cgroup/memory.current": "10\n",
        },
    )
    assert (group_of(root).limit, group_of(root).current) == (2000, 10)


def test_version_1(root: Path) -> None:
    files_write(
        root,
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/a\n2:memory:/a\n0::/\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4096\n",
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "100\n",
            "sys/fs/cgroup/memory/a/memory.stat": "inactive_file 9\ntotal_inactive_file 30\ntotal_active_file 4\n",
            "sys/fs/cgroup/memory/a/memory.soft_limit_in_bytes": "50\n",
            "sys/fs/cgroup/memory/a/memory.memsw.limit_in_bytes": "4096\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        },
    )
    group = group_of(root)
    assert (group.version, group.limit, group.current, group.processors) == (1, 4096, 100, 2.0)
    assert (group.high, group.swap_limit, group.files) == (None, 0, 34)


def test_no_control_groups(root: Path) -> None:
    (root / "proc/self/cgroup").unlink()
    assert group_read(Process(SELF, root / "proc"), root / "sys") is None


def test_the_group_of_a_process_whose_main_thread_has_ended(root: Path) -> None:
    """A thread that ended is in the topmost group, of version 1 at once."""
    files_write(
        root,
        {
            "proc/self/stat": "7 (sh) Z 1\n",
            "proc/self/cgroup": "2:memory:/\n",
            "proc/self/task/7/stat": "7 (sh) Z 1\n",
            "proc/self/task/7/cgroup": "2:memory:/\n",
            "proc/self/task/8/stat": "8 (sh) S 1\n",
            "proc/self/task/8/cgroup": "2:memory:/a\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4096\n",
        },
    )
    assert group_of(root).limit == 4096


# ---- bounds of a process ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "level"), [(100, Level.FINE), (40000, Level.NOTICE), (60000, Level.PROBLEM)]
)
def test_mappings_in_use(count: int, level: Level) -> None:
    assert [one.level for one in mapping_findings(count, 65530)] == [level]
    assert list(mapping_findings(count, None)) == []


def test_address_space_that_is_used_up() -> None:
    limits = {"Max address space": Limit(1000, None)}
    assert {one.what: one.level for one in limit_findings(limits, 950)}["RLIMIT_AS"] is Level.PROBLEM
    assert {one.what: one.level for one in limit_findings(limits, 100)}["RLIMIT_AS"] is Level.NOTICE


def test_processors(root: Path) -> None:
    assert processors_of(Process(SELF, root / "proc")) == 5


# ---- what hakmem says of itself -----------------------------------------------------------------------------


def test_proofs() -> None:
    (served,) = proof_findings({7: "served", 8: "served"}, 7)
    assert (served.level, served.value) == (Level.FINE, "2 of 2 that reported")
    assert "one without it is silent" in served.means  # as a static program that env becomes
    other = list(proof_findings({7: "other /lib/libjemalloc.so"}, 7))
    assert (other[0].level, other[0].value) == (Level.PROBLEM, "/lib/libjemalloc.so")
    (none,) = proof_findings({}, 7)
    assert (none.level, none.what, none.value) == (Level.PROBLEM, "proof of service", "none")
    (unknown,) = proof_findings({}, 7, can_report=False)
    assert (unknown.level, unknown.value) == (Level.NOTICE, "not known")


def test_problems_come_first() -> None:
    findings = [fine("a", "", ""), problem("b", "", ""), notice("c", "", "")]
    assert [one.what for one in ordered(findings)] == ["b", "c", "a"]
