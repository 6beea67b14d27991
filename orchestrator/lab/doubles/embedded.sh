# pct's hands in the embedded lab: a user, pid and mount namespace where allowed, else plain processes.
CONFIGS=$LAB/pve

# The login is whoever made the lab; inside the container's user namespace it counts as root.
need_root() { :; }

# Sets mode, init and ticks.
read_state() { [ -e "$LAB/container-$1" ] && read -r mode init ticks <"$LAB/container-$1"; }

is_running() {
    read_state "$1" || return 1
    [ "$mode" = namespaces ] || return 0
    stat=$(cat "/proc/$init/stat" 2>/dev/null) || return 1
    # Past `pid (name) ` the start time is the 20th field; with it, a reused pid is another process.
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    [ "$1" != Z ] && [ "${20}" = "$ticks" ]
}

attach() { # id, --keep-env or --clear-env, argv; no argv: a shell
    exec "$PYTHON" -ISE "$LAB/container.py" attach "$LAB" "$@"
}

start() { "$PYTHON" -ISE "$LAB/container.py" start "$LAB" "$1"; }
stop() { exec "$PYTHON" -ISE "$LAB/container.py" stop "$LAB" "$1"; }
shutdown() { stop "$1"; }
