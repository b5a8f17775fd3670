/* The supervisor's system call filter: what an agent could aim at process 1, or take from all pods of its node. `guard` is all that is for others. */
#ifndef ORCHESTRATE_GUARD_H
#define ORCHESTRATE_GUARD_H

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define MACHINE AUDIT_ARCH_AARCH64
#else
#error "no system call filter for this machine"
#endif
#define OTHER_ABI 0x40000000u /* x32: the numbers above are another ABI's */
#define IOPRIO_WHO_USER 3
#define ANY (-1)
#define REFUSE(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (field))

/* A call that is refused when the low half of an argument is this value, or has this bit; ANY: always, as if there were no such call. */
struct refused {
    int call, argument;
    uint32_t value;
    bool bit;
};

static const struct refused refused[] = {
    {SYS_kill, 0, 1, false},
    {SYS_tkill, 0, 1, false},
    {SYS_tgkill, 1, 1, false},
    {SYS_rt_sigqueueinfo, 0, 1, false},
    {SYS_rt_tgsigqueueinfo, 1, 1, false},
    {SYS_pidfd_send_signal, ANY, 0, false},
    {SYS_fcntl, 1, F_SETSIG, false},       /* SIGSTOP when a file is ready, to whoever F_SETOWN names */
    {SYS_clone, 0, CLONE_PARENT, true},    /* a child of process 1, and gVisor sends it what signal one likes at its end */
    {SYS_clone3, ANY, 0, false},           /* the same, where no filter can see it */
    {SYS_prlimit64, 0, 1, false},
    {SYS_ptrace, 1, 1, false},
    {SYS_process_vm_readv, 0, 1, false},
    {SYS_process_vm_writev, 0, 1, false},
    {SYS_setpriority, 1, 1, false},
    {SYS_setpriority, 0, PRIO_USER, false},
    {SYS_ioprio_set, 1, 1, false},
    {SYS_ioprio_set, 0, IOPRIO_WHO_USER, false},
    {SYS_sched_setscheduler, 0, 1, false},
    {SYS_sched_setparam, 0, 1, false},
    {SYS_sched_setattr, 0, 1, false},
    {SYS_sched_setaffinity, 0, 1, false},
    {SYS_io_setup, ANY, 0, false},         /* its contexts are counted for the whole node: one pod could have them all */
    {SYS_mq_open, ANY, 0, false},          /* so are its queues, for each user; and they outlive a request of graded work */
};

/* Refuse from now on, to us and all that we start, what could hold, end or starve process 1. */
static bool guard(void) {
    static struct sock_filter code[6 + 5 * sizeof refused / sizeof refused[0] + 1] = {
        LOAD(offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0),
        REFUSE(ENOSYS),
        LOAD(offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, OTHER_ABI, 0, 1),
        REFUSE(ENOSYS),
    };
    struct sock_fprog program = {.len = 6, .filter = code};
    for (size_t at = 0; at < sizeof refused / sizeof refused[0]; at++) {
        const struct refused *each = &refused[at];
        bool any = each->argument == ANY;
        struct sock_filter rule[] = {
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, each->call, 0, any ? 1 : 4),
            LOAD(offsetof(struct seccomp_data, args) + 8 * (any ? 0 : each->argument)), /* little-endian: the low half */
            BPF_JUMP(BPF_JMP | (each->bit ? BPF_JSET : BPF_JEQ) | BPF_K, each->value, 0, 1),
            REFUSE(EPERM),
            LOAD(offsetof(struct seccomp_data, nr)),
        };
        if (any) rule[1] = (struct sock_filter)REFUSE(ENOSYS);
        memcpy(code + program.len, rule, (any ? 2 : 5) * sizeof rule[0]);
        program.len += any ? 2 : 5;
    }
    code[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

#endif
