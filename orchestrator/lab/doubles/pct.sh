#!/bin/sh
# The lab's pct: what Proxmox VE's own (pve-container 6.1) does for the sub-commands below, as far as orch can see it.
# Rule: anything that it does not know is an error; it never guesses. LAB and PYTHON are filled in when it is installed.
# Here is what it says and refuses; what it does is in pct-backend: lxc.sh or embedded.sh.
LAB=@LAB@
PYTHON=@PYTHON@
# What differs between the labs: need_root, is_running, attach, start, stop, shutdown, CONFIGS.
. "$LAB/pct-backend"

printf '%s %s\n' "$(date +%s.%N)" "$*" >>"$LAB/pct-starts"
PATH=/sbin:/bin:/usr/sbin:/usr/bin
export PATH
umask 022

die() { # code, text
    printf '%s\n' "$2" >&2
    exit "$1"
}

usage() {
    cat >&2 <<'TEXT'
USAGE: pct <COMMAND> [ARGS] [OPTIONS]

       pct config <vmid> [OPTIONS]
       pct enter <vmid> [OPTIONS]
       pct exec <vmid> [<extra-args>] [OPTIONS]
       pct list
       pct shutdown <vmid> [OPTIONS]
       pct start <vmid> [OPTIONS]
       pct status <vmid> [OPTIONS]
       pct stop <vmid> [OPTIONS]
TEXT
    exit 255
}

bad_parameter() { # name, text
    printf '400 Parameter verification failed.\n%s: %s\n' "$1" "$2" >&2
    printf 'pct %s <vmid> [OPTIONS]\n' "$command" >&2
    exit 255
}

need_root
if [ -s "$LAB/pct-cost" ]; then
    "$PYTHON" -ISc 'import sys, time
while time.process_time() < float(sys.argv[1]):
    pass' "$(cat "$LAB/pct-cost")"
fi

[ $# -gt 0 ] || usage
command=$1
shift
case $command in
exec | enter | status | config | start | stop | shutdown | list) ;;
help) usage ;;
*)
    printf "ERROR: unknown command 'pct %s'\n" "$command" >&2
    usage
    ;;
esac

node=$(hostname)
config_of() { printf '%s/%s.conf' "$CONFIGS" "$1"; }
value_of() { # id, key
    sed -n "s/^$2: *//p" "$(config_of "$1")"
}
state_of() { if is_running "$1"; then echo running; else echo stopped; fi; }

if [ "$command" = list ]; then
    [ $# = 0 ] || bad_parameter "$1" "property is not defined in schema and the schema does not allow additional properties"
    heading=yes
    for config in "$CONFIGS"/*.conf; do
        [ -e "$config" ] || continue
        id=${config##*/}
        id=${id%.conf}
        [ -z "$heading" ] || printf '%-10s %-10s %-12s %-20s\n' VMID Status Lock Name
        heading=
        printf '%-10s %-10s %-12s %-20s\n' "$id" "$(state_of "$id")" "$(value_of "$id" lock)" "$(value_of "$id" hostname)"
    done
    exit 0
fi

# Options may stand before or after the id, up to a `--`.
keep_env=1 verbose= id=
while [ $# -gt 0 ]; do
    word=$1
    case $word in
    --)
        break
        ;;
    --keep-env | -keep-env)
        [ "$command" = exec ] || [ "$command" = enter ] || bad_parameter keep-env "property is not defined in schema"
        [ $# -gt 1 ] || die 255 "Option keep-env requires an argument"
        keep_env=$2
        shift
        ;;
    --keep-env=* | -keep-env=*) keep_env=${word#*=} ;;
    --verbose | -verbose)
        [ "$command" = status ] || bad_parameter verbose "property is not defined in schema"
        verbose=1
        ;;
    -*)
        printf 'Unknown option: %s\n400 unable to parse option\n' "${word#-}" >&2
        exit 255
        ;;
    *)
        if [ -n "$id" ]; then
            # The first word of the command; Getopt would go on looking for options in the rest.
            for later in "$@"; do
                case $later in
                --) break ;;
                -*)
                    printf 'Unknown option: %s\n400 unable to parse option\n' "${later#-}" >&2
                    exit 255
                    ;;
                esac
            done
            break
        fi
        id=$word
        ;;
    esac
    shift
done
[ "${1-}" != -- ] || shift
[ -n "$id" ] || bad_parameter vmid "property is missing and it is not optional"
case $id in
0* | *[!0-9]*) bad_parameter vmid "type check ('integer') failed - got '$id'" ;;
esac
case $keep_env in
1 | yes | on | true) keep_env=--keep-env ;;
0 | no | off | false) keep_env=--clear-env ;;
*) bad_parameter keep-env "type check ('boolean') failed - got '$keep_env'" ;;
esac
if [ "$command" != exec ] && [ $# -gt 0 ]; then
    printf '400 too many arguments\npct %s <vmid> [OPTIONS]\n' "$command" >&2
    exit 255
fi
[ -e "$(config_of "$id")" ] || die 2 "Configuration file 'nodes/$node/lxc/$id.conf' does not exist"

refuse_locked() {
    lock=$(value_of "$id" lock)
    [ -z "$lock" ] || die 255 "CT is locked ($lock)"
}

case $command in
exec)
    is_running "$id" || die 255 "container '$id' not running!"
    [ $# -gt 0 ] || die 255 "missing command"
    unset SSL_CERT_FILE SSL_CERT_DIR
    attach "$id" "$keep_env" "$@"
    ;;
enter)
    is_running "$id" || die 255 "container '$id' not running!"
    unset SSL_CERT_FILE SSL_CERT_DIR
    attach "$id" "$keep_env"
    ;;
status)
    if [ -n "$verbose" ]; then
        printf 'name: %s\nstatus: %s\nvmid: %s\n' "$(value_of "$id" hostname)" "$(state_of "$id")" "$id"
    else
        printf 'status: %s\n' "$(state_of "$id")"
    fi
    ;;
config)
    sed '/^lxc\./d' "$(config_of "$id")"
    sed -n '/^lxc\./p' "$(config_of "$id")"
    ;;
start)
    refuse_locked
    ! is_running "$id" || die 255 "CT $id already running"
    start "$id" || die 255 "startup for container '$id' failed"
    ;;
stop | shutdown)
    refuse_locked
    is_running "$id" || die 255 "CT $id not running"
    "$command" "$id"
    ;;
esac
