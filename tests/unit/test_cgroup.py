"""What a container may use, from files as both versions of cgroups and lxcfs write them."""

import pytest

from orchestrator.agent.far.cgroup import container_facts

GIB = 1 << 30


@pytest.fixture
def root(tmp_path):
    def make(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        found = container_facts(f"{tmp_path}/")
        del found["uptime_s"]  # of this machine
        return found

    return make


def facts(used, limit, cores):
    return {"memory_used_bytes": used, "memory_limit_bytes": limit, "cpu_limit_cores": cores}


def test_nothing_is_known_where_nothing_is_written(root):
    assert root({}) == facts(None, None, None)
    assert container_facts()["uptime_s"] > 0


def test_version_2_with_the_limit_out_of_sight_and_lxcfs(root):
    found = root(
        {
            "proc/self/cgroup": "0::/.lxc\n",
            "proc/self/mountinfo": "32 28 0:29 /proc/meminfo /proc/meminfo rw - fuse.lxcfs lxcfs rw\n",
            "proc/meminfo": "MemTotal:       67108864 kB\nMemFree:        1 kB\n",
            "sys/fs/cgroup/memory.current": f"{5 * GIB}\n",
            "sys/fs/cgroup/memory.stat": f"anon 1\ninactive_file {GIB}\n",
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
            "sys/fs/cgroup/.lxc/memory.current": "4096\n",
        }
    )
    assert found == facts(4 * GIB, 64 * GIB, None), "of the whole container, not of where pct exec puts us"


def test_version_2_with_limits_in_sight(root):
    found = root(
        {
            "proc/self/cgroup": "0::/a/b\n",
            "proc/meminfo": "MemTotal:       9 kB\n",
            "sys/fs/cgroup/a/memory.current": "3000\n",
            "sys/fs/cgroup/a/memory.max": "8192\n",
            "sys/fs/cgroup/a/b/memory.max": "4096\n",
            "sys/fs/cgroup/a/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "150000 100000\n",
        }
    )
    assert found == facts(3000, 4096, 1.5), "the narrowest; without lxcfs meminfo is the machine's"


def test_version_1(root):
    found = root(
        {
            "proc/self/cgroup": "4:memory:/\n2:cpu,cpuacct:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "9000\n",
            "sys/fs/cgroup/memory/memory.stat": "inactive_file 7\ntotal_inactive_file 1000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        }
    )
    assert found == facts(8000, None, 4.0)


@pytest.mark.parametrize("text", ["", "max", "-1", "x y", "1 0", "\xff"])
def test_odd_files_are_unknown(root, text):
    names = ("memory.current", "memory.max", "cpu.max", "memory.stat", "cpu.cfs_quota_us")
    found = root({"proc/self/cgroup": f"0::/\n{text}\n", **{f"sys/fs/cgroup/{name}": text for name in names}})
    assert found == facts(None, None, None)
