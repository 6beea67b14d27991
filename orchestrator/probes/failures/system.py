"""Failures that the kernel, the shell, libc and the file system tell of."""

from __future__ import annotations

from orchestrator.probes.failures.signature import Signature, signature

_ERRNO_PATH = r"\[Errno \d{1,3}\] [A-Z][\w/ -]{3,60}: '(?P<path>[^'\n]{1,400})'"
"""As Python words an OSError."""
_KB = r"[\d, ]{1,24}"
_SHELLS = r"[:：] {0,2}(?:Zeile|ligne|línea|riga|linha|строка|行|第) ?\d{1,6}(?: ?行)? ?[:：] +(?P<pid>\d{1,9}) +"
"""Of bash in German, French, Spanish, Italian, Portuguese, Russian, Chinese and Japanese."""


def _in_shells(kind: str, words: str, alone: str = "|^") -> Signature:
    """What glibc calls the signal, behind what bash puts in front, or alone in a row."""
    core = r" *[(（][^)）\n]{1,40}[)）]"
    command = rf"(?:{core} ?| {{2,}})(?P<command>[^\s(（].{{0,200}})"
    pattern = rf"(?:{_SHELLS}{alone})(?:{words})(?:{command}|{core})?\s*$"
    return signature(kind, words.replace("\\", "").lower(), pattern)


_IN_OTHER_LANGUAGES = (
    _in_shells("killed", "Getötet|Processus arrêté|Terminado \\(killed\\)|Ucciso|Убито|已杀死|強制終了"),
    _in_shells(
        "segfault",
        "Speicherzugriffsfehler|Erreur de segmentation|Violación de segmento|Errore di segmentazione"
        "|Falha de segmentação|Ошибка сегментирования|段错误",
    ),
    _in_shells("bus_error", "Bus-Zugriffsfehler|Erreur du bus|Error en el bus|Errore di bus|总线错误"),
    _in_shells("aborted", "Abgebrochen|Abandon|Abortado|已放弃|中止", alone=""),
)
NO_SPACE = (
    "No space left on device|Auf dem Gerät ist kein Speicherplatz mehr verfügbar|Kein Speicherplatz mehr auf dem Gerät"
    "|Aucun espace disponible sur le périphérique|No queda espacio en el dispositivo|Spazio esaurito sul device"
    "|Não há espaço disponível no dispositivo|На устройстве не осталось свободного места|设备上没有空间"
    "|デバイスに空き領域がありません"
)
"""As glibc says it, in the languages of _SHELLS."""
SIGNATURES: tuple[Signature, ...] = (
    signature(
        "host_oom_kill",
        "oomkilled|: out of memory|killed process|kill process|oom-kill:|oom_kill|oom-killer|oom "
        "killer|oom-kill event|out-of-memory "
        "handler|systemd-oomd|memory pressure (oom)|node running low on memory",
        r"(?:(?:memory cgroup )?out of memory: )?"
        r"kill process (?P<chosen_pid>\d{1,9}) \((?P<chosen>[^)\n]{1,64})\) score \d"  # it, or a child of it
        r"|(?:out of memory: |killed as a result "
        r"|memory cgroup out of memory: )?kill(?:ed)? process (?P<pid>\d{1,9}),? "
        r"\(?(?P<process>[^),\n]{1,64})\)?"
        r"|oom-kill:constraint=(?P<constraint>\w{1,40})"
        r"|(?P<process2>[^\s:\]]{1,64}) invoked oom-killer|detected (?P<count>\d{1,6}) oom[-_]kill event"
        r"|killed by the (?:cgroup )?(?:out-of-memory handler|OOM killer)"
        r"|systemd-oomd(?:\[\d{1,9}\]:)? killed|OOMKilled"
        r"|srun: error: .{1,120}: Out Of Memory\b"
        r"|killed due to (?:memory pressure \(OOM\)|the node running low on memory)",
        rf"total-vm: ?(?P<total_vm_kb>{_KB})kB",
        rf"anon-rss: ?(?P<anon_rss_kb>{_KB})kB",
        rf"file-rss: ?(?P<file_rss_kb>{_KB})kB",
        rf"shmem-rss: ?(?P<shmem_rss_kb>{_KB})kB",
        rf"pgtables: ?(?P<pgtables_kb>{_KB})kB",
        r"UID: ?(?P<uid>\d{1,9})",
        r"constraint=(?P<constraint>CONSTRAINT_\w{1,20})",
        r"task=(?P<process>[^,\n]{1,64}),pid=(?P<pid>\d{1,9}),uid=(?P<uid>\d{1,9})",
        r"task_memcg=(?P<memory_cgroup>[^,\n]{1,200})",
    ),
    signature(
        "host_oom_kill",  # what the container had used, and might
        "memory: usage",
        rf"\bmemory: usage (?P<usage_kb>{_KB})kB, limit (?P<limit_kb>{_KB})kB, failcnt \d",
    ),
    signature(
        "killed",
        "killed",
        r"^(?:[\w./~-]{1,200}: line \d{1,6}: +(?P<pid>\d{1,9}) |zsh: "
        r"|\[\d{1,3}\][+-]? +(?:\d{1,9} )?)?killed\b(?!:)(?: +(?P<command>\S.{0,200}))?\s*$",
        unless=r"killed by|killed process",
    ),
    signature(
        "segfault",
        "segmentation fault|segfault at|sigsegv|general protection fault",
        r"(?P<process>[^\s\[\]]{1,64})\[(?P<pid>\d{1,9})\]: segfault at (?P<address>[\da-f]{1,16}) ip .{1,60} "
        r"error \d{1,6}(?: in (?P<library>[^\[\s]{1,200}))?"
        r"|traps: (?P<process2>[^\s\[\]]{1,64})\[(?P<pid2>\d{1,9})\] general protection fault.{0,80} in "
        r"(?P<library2>[^\[\s]{1,200})"
        r"|(?:^|zsh: |\d |: |\[orch\].{0,80})segmentation fault(?: +\(core dumped\))?"
        r"|caught signal 11 \(Segmentation fault"
        r"|unexpected segmentation fault encountered"
        r"|signal: segmentation fault|signal SIGSEGV|\*\*\* SIGSEGV|<Signals\.SIGSEGV|signal 11 \(SIGSEGV\)",
        r": line \d{1,6}: +(?P<pid>\d{1,9}) ",
        r"segmentation fault(?: +\(core dumped\))? {1,8}(?P<command>(?!encountered)[^\s(].{0,200})$",
        r"worker \(pid\(?s?\)? (?P<pid>\d{1,9})\)",
        unless=r"^Fatal Python error|^\s*#",
    ),
    signature(
        "bus_error",
        "bus error|sigbus",
        r"(?:^|zsh: |\d |: |unexpected )bus error(?: +\(core dumped\))?|<Signals\.SIGBUS|signal 7 \(SIGBUS\)"
        r"|signal SIGBUS|caught signal 7",
        r": line \d{1,6}: +(?P<pid>\d{1,9}) ",
        r"bus error(?: +\(core dumped\))? {1,8}(?P<command>(?!encountered)[^\s(].{0,200})$",
        r"worker \(pid\(?s?\)? (?P<pid>\d{1,9})\)",
        r"(?P<shm>insufficient shared memory \(shm\)|out of shared memory)",
        unless=r"^Fatal Python error",
    ),
    *_IN_OTHER_LANGUAGES,
    signature(
        "illegal_instruction",
        "illegal instruction|sigill",
        r"(?:^|zsh: |\d |: )illegal (?:hardware )?instruction(?: +\(core dumped\))?|trap invalid opcode"
        r"|<Signals\.SIGILL|signal 4 \(SIGILL\)",
        unless=r"^Fatal Python error|cuda error",
    ),
    signature(
        "fpe",
        "floating point exception|sigfpe",
        r"(?:^|zsh: |\d |: )floating point exception(?: +\(core dumped\))?|<Signals\.SIGFPE|signal 8 \(SIGFPE\)",
        unless=r"^Fatal Python error",
    ),
    signature(
        "memory_corruption",
        "free():|malloc():|double free|corrupted|munmap_chunk|realloc():|invalid next size|stack smashing",
        r"(?P<error>(?:free|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): [a-z][^\n]{1,80}"
        r"|double free or corruption[^\n]{0,40}"
        r"|corrupted (?:size vs\. prev_size|double-linked list)[^\n]{0,40}|\*\*\* stack smashing detected \*\*\*)",
    ),
    signature(
        "aborted",
        "aborted|sigabrt|terminate called|pure virtual method|assertion",
        r"(?:^|zsh: |\d )abort(?:ed)? *\(core dumped\)|^aborted\s*$|zsh: abort "
        r"|terminate called after throwing an instance of '(?P<exception>[^'\n]{1,120})'"
        r"|terminate called without an active exception|pure virtual method called"
        r"|(?P<file>[\w./-]{1,300}\.(?:cuh?|cc|cpp|cxx|c|h|hpp)):(?P<line_number>\d{1,6}): (?:[^\n]{1,500}: )?"
        r"Assertion [`'](?P<assertion>[^\n]{1,300}?)' failed"
        r"|signal 6 \(SIGABRT\)|<Signals\.SIGABRT|\*\*\* SIGABRT",
        r"what\(\): +(?P<what>[^\n]{1,300})",
        following=2,
        unless=r"^Fatal Python error|: block: \[",
    ),
    signature(
        "data_worker_died",
        "dataloader worker",
        r"DataLoader worker \(pid\(?s?\)? ?(?P<pid>\d{1,9})[^)\n]{0,120}\) (?:is killed by signal: "
        r"(?P<signal_name>[A-Za-z ]{1,40})|exited unexpectedly)",
        r"(?P<shm>out of shared memory|insufficient shared memory)",
        following=2,
    ),
    signature(
        "shm_full",
        "shared memory|/dev/shm|unable to write to file </torch|shm_open|unable to open shared memory|unable to mmap"
        "|posix_fallocate",
        r"unable to write to file </torch_"
        r"|insufficient shared memory \(shm\)|unable to (?:write to|open) (?:file"
        r"|shared memory object) </torch_[^>\n]{1,80}>[^\n]{0,80}(?:no space left|\(28\))"
        r"|unable to mmap (?P<tried_bytes>\d{1,18} bytes) from file <[^>\n]{0,200}>: Cannot allocate memory"
        r"|Error while creating shared memory segment (?P<path>[^\n]{1,120}?) \(size (?P<tried_bytes2>\d{1,18})"
        r"|No space left on device[^\n]{0,80}'?/dev/shm|/dev/shm[^\n]{0,120}No space left on device"
        r"|out of shared memory|NCCL WARN Call to posix_fallocate failed",
    ),
    signature(
        "disk_full",
        f"{NO_SPACE.lower()}|errno 28|enospc|disk full|not enough disk space|os error 28",
        rf"{NO_SPACE}|\[Errno 28\]|ENOSPC|not enough (?:free )?disk space",
        r"no space left on device[^\n]{0,12}: ?'(?P<path>[^'\n]{1,400})'",
        r"'(?P<path>/[^'\n]{1,400})'[^\n]{0,40}No space left",
        unless=r"/dev/shm|</torch_|inotify|shared memory|posix_fallocate",
    ),
    signature(
        "inodes_full",
        "iuse%|no free inodes|out of inodes",
        r"\bIFree +IUse%|no free inodes|out of inodes|[1-9]\d{2,11} +\d{1,12} +0 +100% +/\S*$",
        r"(?P<inodes>[1-9]\d{2,11}) +\d{1,12} +0 +100% +(?P<path>/\S{0,200})",
        following=12,
        needs="path",
    ),
    signature("disk_quota", "quota exceeded|errno 122", r"disk quota exceeded|\[Errno 122\]", _ERRNO_PATH),
    signature(
        "checkpoint_write",
        "pytorchstreamwriter|inline_container|enforce fail at|unexpected pos|safetensorerror|error while "
        "serializing|ioerror: write",
        r"PytorchStreamWriter failed writing file (?P<record>[^\s:]{1,200})"
        r"|unexpected pos (?P<position>\d{1,20}) vs (?P<wanted>\d{1,20})"
        r"|inline_container\.cc[: ][^\n]{0,40}|Error while serializing: (?P<error>[^\n]{1,200})",
        r"file write failed",
        r"failed writing file (?P<record>[^\s:]{1,200})",
        r"unexpected pos (?P<position>\d{1,20}) vs (?P<wanted>\d{1,20})",
        unless=r"failed reading|failed finding|reading zip archive",
    ),
    signature(
        "io_error",
        "input/output error|errno 5]|(5)|eio|i/o error",
        # not of a drive without a medium
        r"(?:blk_update_request|print_req_error|\] [\w-]{2,20}): .{0,40}error, dev (?!fd\d|sr\d)(?P<device>\w{1,32})"
        r"|Buffer I/O error on (?:dev|device) (?!fd\d|sr\d)(?P<device2>[\w-]{1,32})"
        r"|\[Errno 5\]|Input/output error|write\(\): fd (?P<fd>\d{1,6}) failed",
        r"fd (?P<fd>\d{1,6}) failed",
        _ERRNO_PATH,
    ),
    signature(
        "read_only",
        "read-only file system|errno 30|filesystem read-only",
        r"\[Errno 30\]|read-only file system|Remounting filesystem read-only",
        _ERRNO_PATH,
    ),
    signature("stale_mount", "stale|errno 116|os error 116", r"Stale (?:NFS )?file handle|\[Errno 116\]", _ERRNO_PATH),
    signature(
        "dead_mount",
        "transport endpoint|errno 107",
        r"Transport endpoint is not connected|\[Errno 107\]",
        _ERRNO_PATH,
    ),
    signature(
        "bad_command",
        ".py: error: |can't open file|command not found",
        r"^(?:usage: .{0,200})?[\w.-]{1,80}\.py: error: (?P<error>[^\n]{1,300})"
        r"|can't open file '(?P<path>[^'\n]{1,300})': \[Errno 2\]"
        r"|^(?:(?:/\S{1,80}|bash|sh|zsh|env): )?(?:line \d{1,6}: )?(?P<program>[\w./+-]{1,120}): command not found$",
    ),
    signature(
        "process_limit",
        "can't start new thread|resource temporarily unavailable|pthread_create|cannot fork",
        r"can't start new thread|(?:fork: (?:retry: )?|\[Errno 11\] )Resource temporarily unavailable"
        r"|pthread_create failed|cannot fork\b",
    ),
    signature(
        "damaged_file",
        "pytorchstreamreader|zip archive|deserializing header|invalid load key|unexpected eof, expected"
        "|ran out of input|badzipfile|unpicklingerror|consistency check failed",
        r"PytorchStreamReader failed (?:reading|finding|locating)[^\n]{0,120}|failed finding central directory"
        r"|Error while deserializing header: (?P<error>\w{1,60})"
        r"|unexpected EOF, expected (?P<missing_bytes>\d{1,18}) more|EOFError: Ran out of input"
        r"|Consistency check failed: file should be of size (?P<wanted_bytes>\d{1,18})"
        r"(?: but has size (?P<found_bytes>\d{1,18}))?"
        r"|BadZipFile: (?P<error2>[^\n]{1,80})|UnpicklingError: (?P<error3>[^\n]{1,80})",
        unless="PytorchStreamWriter",
    ),
    signature("open_files", "too many open files|errno 24|ancdata", r"\[Errno 24\]|too many open files|ancdata"),
    signature(
        "host_memory",
        "can't allocate memory|memoryerror|cannot allocate memory|unable to allocate|bad_alloc|defaultcpuallocator",
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|^MemoryError\b|\b_?ArrayMemoryError"
        r"|Unable to allocate (?P<tried_bytes>[\d.]{1,20} ?[KMGTP]i?B)"
        r"|\[Errno 12\]|OSError: .{0,40}Cannot allocate memory|std::bad_alloc",
        r"you tried to allocate (?P<tried_bytes>\d{1,20} bytes)",
        unless=r"unable to mmap|^\s*(?:raise|except)\b",
    ),
)
