//! The OCI configuration of a box: what runc makes of it. Data only.

use std::path::Path;

use icebox_lifecycle::BoxId;
use serde_json::{Value, json};

use super::cgroup::Hierarchies;
use super::image::BOXD_IN_BOX;
use super::userns;

/// Capabilities inside the box's own user namespace: what `sudo`, package managers and servers need, and
/// nothing that reaches mounts, devices, the network's configuration or the kernel.
const CAPABILITIES: &[&str] = &[
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// System calls that no program in a box gets: kernel administration, and what CRIU cannot copy.
const DENIED: &[&str] = &[
    "acct",
    "add_key",
    "bpf",
    "clock_adjtime",
    "clock_settime",
    "create_module",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "get_kernel_syms",
    "init_module",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pivot_root",
    "query_module",
    "quotactl",
    "reboot",
    "request_key",
    "setns",
    "settimeofday",
    "stime",
    "swapoff",
    "swapon",
    "syslog",
    "umount",
    "umount2",
    "unshare",
    "uselib",
    "userfaultfd",
];

/// What programs are told is not there, so that they fall back: CRIU cannot copy an io_uring, and a filter
/// cannot look into the arguments of `clone3`.
const ABSENT: &[&str] = &[
    "clone3",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
];

/// The bits by which `clone` makes namespaces: none inside a box, since a copy could not hold them.
const NAMESPACE_BITS: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Every way in which a program on this machine may name system calls.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURES: &[&str] = &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"];
#[cfg(target_arch = "aarch64")]
const ARCHITECTURES: &[&str] = &["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"];

/// Everything of a box's configuration that differs between boxes.
pub(super) struct Bundle<'a> {
    pub(super) id: BoxId,
    pub(super) rootfs: &'a Path,
    pub(super) boxd: &'a Path,
    pub(super) uid_base: u32,
    pub(super) env: Vec<String>,
}

/// The `config.json` of a box.
pub(super) fn config(bundle: &Bundle<'_>) -> Value {
    let ids = json!([{"containerID": 0, "hostID": bundle.uid_base, "size": userns::IDS}]);
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": [BOXD_IN_BOX],
            "env": bundle.env,
            "cwd": "/",
            "capabilities": {
                "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
            },
            // `sudo` must work in the box; the user namespace is what contains it.
            "noNewPrivileges": false,
        },
        "root": {"path": bundle.rootfs, "readonly": false},
        "hostname": "box",
        "mounts": mounts(bundle.boxd),
        "linux": {
            "namespaces": [
                {"type": "user"}, {"type": "pid"}, {"type": "network"}, {"type": "ipc"},
                {"type": "uts"}, {"type": "mount"}, {"type": "cgroup"},
            ],
            "uidMappings": ids,
            "gidMappings": ids,
            "cgroupsPath": Hierarchies::runc_path(bundle.id),
            "maskedPaths": [
                "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
                "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware",
            ],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            "seccomp": seccomp(),
        },
    })
}

fn mounts(boxd: &Path) -> Value {
    json!([
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
         "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
         "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
         "options": ["nosuid", "nodev", "mode=1777"]},
        {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue",
         "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs",
         "options": ["nosuid", "noexec", "nodev", "ro"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
         "options": ["nosuid", "nodev", "mode=1777"]},
        {"destination": "/run", "type": "tmpfs", "source": "tmpfs",
         "options": ["nosuid", "nodev", "mode=755"]},
        {"destination": BOXD_IN_BOX, "type": "bind", "source": boxd,
         "options": ["bind", "ro", "nosuid", "nodev"]},
    ])
}

fn seccomp() -> Value {
    let mut syscalls = vec![
        json!({"names": DENIED, "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EPERM}),
        json!({"names": ABSENT, "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS}),
    ];
    // A filter can compare bits with a mask but not say "any of them": one line a bit.
    syscalls.extend(NAMESPACE_BITS.iter().map(|bit| {
        json!({
            "names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EPERM,
            "args": [{"index": 0, "value": bit, "valueTwo": bit, "op": "SCMP_CMP_MASKED_EQ"}],
        })
    }));
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ARCHITECTURES,
        "syscalls": syscalls,
    })
}
