/* The first process of an agent's container.
 *
 *   supervisor run -- COMMAND…    holds the lock on /ctl/alive, starts COMMAND, ends everything, tells how it went
 *   supervisor guard -- COMMAND…  becomes COMMAND, refused the same system calls: for what another first process watches over
 *
 * The agent runs under the same user and has read this file. What it is up against:
 * - It cannot kill, trace or read its supervisor: Linux drops signals from inside the PID namespace unless its first process handles
 *   them, and PR_SET_DUMPABLE 0 closes ptrace, /proc/1/mem and /proc/1/fd.
 * - gVisor drops no signals, and any kernel lets the same user change resource limits and priorities. So a system call filter refuses
 *   what is aimed at process 1. Should there be a way around it: nothing is allocated or opened while the agent runs, and whatever
 *   kills the supervisor ends the agent with it: the container's exit code is then 137.
 * - It can write to /log: everything there is opened before it starts, and put in order once it is dead.
 * - It can write to the container's termination message, whose bytes on the node's disk nobody counts: it is cut while it runs.
 * - It cannot write to /ctl, which is where the limits, the lock and the files that say stop are.
 *
 * The lock is given back only by exiting, and exiting comes after the last process of the container is reaped.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guard.h"

/* Exit codes. A command's own codes from LOWEST_OF_OURS to HIGHEST_OF_OURS are shown as TAKEN, so that ours mean what they say. */
enum {
    TAKEN = 118,
    OUT_OF_DISK = 119,
    CANNOT_LOCK = 120, /* somebody keeps the lock: the agent must not start any more */
    CANNOT_START = 121,
    OUT_OF_MEMORY = 122,
    TOO_MANY_PROCESSES = 123,
    DEADLINE = 124,
    STOPPED = 125,
    CANNOT_RUN = 126,
    NOT_FOUND = 127,
    TERMINATED = 128 + SIGTERM,
    LOWEST_OF_OURS = OUT_OF_DISK,
    HIGHEST_OF_OURS = STOPPED,
};

#define TICK_MS 50          /* between looks at the files that say stop */
#define SAMPLE_TICKS 4      /* between counts of processes and of processes killed for memory */
#define MOST_REAPED 1024    /* between looks at the clock */
#define LOCK_TRIES 200      /* times 10 ms: the freezer may hold the lock for the moment in which it tries it */
#define HEAD_BYTES 32       /* of /log/output: bytes printed and size of the ring, as text, before the ring itself */
#define MOST_OUTPUT (64u << 20)
#define MOST_LAST_WORDS (64 << 10) /* of the termination message while the agent runs; the kubelet reads 4096 bytes */

/* ------------------------------------------------------------------------------------------------------------- small things */

static int termination = -1; /* the container's termination message */

static void tell(const char *format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    dprintf(STDERR_FILENO, "supervisor: %s\n", text);
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static double wall_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool write_at(int file, const char *data, size_t size, off_t at) {
    while (size > 0) {
        ssize_t done = pwrite(file, data, size, at);
        if (done <= 0) {
            if (done < 0 && errno == EINTR) continue;
            return false;
        }
        data += done;
        at += done;
        size -= (size_t)done;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ what is asked */

struct limits {
    double wall_seconds;
    unsigned long output_bytes;
    unsigned long processes;
};

/* Take one line "NAME NUMBER" of /ctl/limits. */
static void take_limit(struct limits *limits, const char *line) {
    char name[32];
    double value;
    if (sscanf(line, "%31s %lf", name, &value) != 2 || !(value > 0)) return;
    if (strcmp(name, "wall_seconds") == 0) limits->wall_seconds = value;
    if (strcmp(name, "output_bytes") == 0) limits->output_bytes = (unsigned long)value;
    if (strcmp(name, "processes") == 0) limits->processes = (unsigned long)value;
}

static bool read_limits(struct limits *limits) {
    char line[128];
    FILE *file = fopen("/ctl/limits", "re");
    memset(limits, 0, sizeof *limits);
    if (file == NULL) return false;
    while (fgets(line, sizeof line, file) != NULL) take_limit(limits, line);
    fclose(file);
    return limits->wall_seconds > 0 && limits->processes > 0 && limits->output_bytes > 0 && limits->output_bytes <= MOST_OUTPUT;
}

/* ------------------------------------------------------------------------------------------------- files in the agent's reach */

static int log_folder = -1;

/* A file in /log that was ours before the agent could touch it. Room is taken now: a full disk comes too late for it. */
static int make_log(const char *name, off_t room) {
    int file;
    unlinkat(log_folder, name, 0);
    file = openat(log_folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file >= 0 && room > 0 && fallocate(file, FALLOC_FL_KEEP_SIZE, 0, room) != 0) errno = 0;
    return file;
}

static bool is_in_place(int file, const char *name) {
    struct stat here, there;
    return fstat(file, &here) == 0 && fstatat(log_folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && here.st_ino == there.st_ino &&
           here.st_dev == there.st_dev;
}

/* Once the agent is dead: return a file that is at its name in /log, whatever the agent put there meanwhile. */
static int back_in_place(int file, const char *name) {
    char aside[64];
    if (is_in_place(file, name)) return file;
    snprintf(aside, sizeof aside, "%s.%lld", name, (long long)now_ms());
    renameat(log_folder, name, log_folder, aside); /* a folder full of things cannot be unlinked */
    int fresh = make_log(name, 0);
    return fresh >= 0 ? fresh : file;
}

/* ---------------------------------------------------------------------------------------------------------- what is printed */

/* The last bytes that the agent printed: in memory, where it cannot reach them, and in /log/output in case that we are killed. */
struct ring {
    char *data;
    size_t size;
    uint64_t printed;
    int file;
};

static bool open_ring(struct ring *ring, size_t size) {
    ring->size = size;
    ring->printed = 0;
    ring->data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ring->file = make_log("output", (off_t)size + HEAD_BYTES);
    return ring->data != MAP_FAILED && ring->file >= 0;
}

static void write_head(const struct ring *ring, int file) {
    char head[HEAD_BYTES + 1];
    snprintf(head, sizeof head, "%20llu %10llu\n", (unsigned long long)ring->printed, (unsigned long long)ring->size);
    write_at(file, head, HEAD_BYTES, 0);
}

static void put(struct ring *ring, const char *data, size_t size) {
    while (size > 0) {
        size_t at = (size_t)(ring->printed % ring->size);
        size_t part = size < ring->size - at ? size : ring->size - at;
        memcpy(ring->data + at, data, part);
        write_at(ring->file, data, part, HEAD_BYTES + (off_t)at);
        ring->printed += part;
        data += part;
        size -= part;
    }
    write_head(ring, ring->file);
}

/* Read once from the agent's pipe. False: nothing more for now (errno is EAGAIN) or for good. */
static bool take_output(struct ring *ring, int from) {
    static char piece[1 << 16];
    ssize_t size = read(from, piece, sizeof piece);
    if (size <= 0) {
        errno = size == 0 ? 0 : errno;
        return false;
    }
    put(ring, piece, (size_t)size);
    return true;
}

/* Once the agent is dead: what it printed, whatever it did to the file. */
static void close_ring(struct ring *ring) {
    size_t held = ring->printed < ring->size ? (size_t)ring->printed : ring->size;
    int file = back_in_place(ring->file, "output");
    write_at(file, ring->data, held, HEAD_BYTES);
    write_head(ring, file);
    if (ftruncate(file, HEAD_BYTES + (off_t)held) != 0) tell("cannot cut /log/output: %s", strerror(errno));
}

/* ------------------------------------------------------------------------------------------------------- what is looked at */

/* What is opened once and only read later. */
struct view {
    DIR *processes;       /* /proc */
    nlink_t task_links;   /* links of /proc/PID/task without those for its threads */
    int memory;           /* the file that counts processes killed for memory, or -1 */
    unsigned long before; /* that count at the start */
    unsigned long most;   /* processes and threads seen at once */
};

static unsigned long memory_kills(int file) {
    char text[2048];
    ssize_t size = file < 0 ? 0 : pread(file, text, sizeof text - 1, 0);
    if (size <= 0) return 0;
    text[size] = 0;
    for (char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += line[0] == '\n';
        if (strncmp(line, "oom_kill ", 9) == 0) return strtoul(line + 9, NULL, 10);
    }
    return 0;
}

static nlink_t links_of_tasks(int folder, const char *process) {
    char path[32];
    struct stat info;
    snprintf(path, sizeof path, "%.20s/task", process);
    return fstatat(folder, path, &info, 0) == 0 ? info.st_nlink : 0;
}

static void open_view(struct view *view) {
    memset(view, 0, sizeof *view);
    view->processes = opendir("/proc");
    if (view->processes != NULL) view->task_links = links_of_tasks(dirfd(view->processes), "self") - 1;
    view->memory = open("/sys/fs/cgroup/memory.events", O_RDONLY | O_CLOEXEC);
    if (view->memory < 0) view->memory = open("/sys/fs/cgroup/memory/memory.oom_control", O_RDONLY | O_CLOEXEC);
    view->before = memory_kills(view->memory);
}

/* Count processes and threads beside our own, but no further than `enough`. Nothing is opened: our limit of open files may be gone. */
static unsigned long count_threads(struct view *view, unsigned long enough) {
    unsigned long found = 0;
    struct dirent *entry;
    if (view->processes == NULL) return 0;
    rewinddir(view->processes);
    while (found <= enough && (entry = readdir(view->processes)) != NULL) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || strcmp(entry->d_name, "1") == 0) continue;
        nlink_t links = links_of_tasks(dirfd(view->processes), entry->d_name);
        if (links > 0) found += links > view->task_links ? links - view->task_links : 1;
    }
    if (found > view->most) view->most = found;
    return found;
}

static unsigned long killed_for_memory(const struct view *view) {
    unsigned long now = memory_kills(view->memory);
    return now > view->before ? now - view->before : 0;
}

/* -------------------------------------------------------------------------------------------------------------- the command */

struct command {
    pid_t pid;
    int output;  /* reading end of its stdout and stderr */
    int failure; /* reading end of a pipe that brings errno when it could not be run */
    int status;  /* wait status, -1 while it runs */
};

/* The agent goes first when memory is short: by ten thousandths more than what the runtime gave the container. */
static void offer_to_oom_killer(void) {
    char text[16] = "";
    int file;
    prctl(PR_SET_DUMPABLE, 1); /* of this process, which is about to be the agent: else this file belongs to root */
    file = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    if (read(file, text, sizeof text - 1) > 0) {
        int score = atoi(text) + 10;
        dprintf(file, "%d", score < 1000 ? score : 1000);
    }
    close(file);
}

/* In the child: become the command. Every descriptor of ours closes itself. */
static void become(char **command, int output, int failure) {
    sigset_t none;
    int input = open("/ctl/stdin", O_RDONLY | O_CLOEXEC);
    if (input < 0) input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setsid();
    offer_to_oom_killer();
    if (input < 0 || dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0) _exit(CANNOT_RUN);
    for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL); /* what was ignored stays so across exec */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(command[0], command);
    int problem = errno;
    dprintf(STDERR_FILENO, "supervisor: cannot run %s: %s\n", command[0], strerror(problem));
    if (write(failure, &problem, sizeof problem) < 0) problem = EIO;
    _exit(problem == ENOENT ? NOT_FOUND : CANNOT_RUN);
}

static bool start(struct command *started, char **command) {
    int output[2], failure[2];
    if (pipe2(output, O_CLOEXEC) != 0 || pipe2(failure, O_CLOEXEC) != 0) return false;
    started->status = -1;
    started->pid = fork();
    if (started->pid == 0) become(command, output[1], failure[1]);
    close(output[1]);
    close(failure[1]);
    started->output = output[0];
    started->failure = failure[0];
    fcntl(started->output, F_SETFL, O_NONBLOCK);
    fcntl(started->failure, F_SETFL, O_NONBLOCK);
    return started->pid > 0;
}

static void note_end(struct command *command, pid_t pid, int status) {
    if (pid == command->pid) command->status = status;
}

/* Take what has ended, orphans included; the rest the next time, since on many processors orphans may come faster than they go. */
static void reap(struct command *command) {
    int status;
    pid_t pid;
    for (int left = MOST_REAPED; left > 0 && (pid = waitpid(-1, &status, WNOHANG)) > 0; left--) note_end(command, pid, status);
}

/* Kill everything in the container and wait until the last of it is gone. One kill(-1) misses nobody: the kernel lets no killed process
 * fork. What it started as orphans comes to us. */
static void end_everything(struct command *command) {
    int status;
    pid_t pid;
    for (;;) {
        kill(-1, SIGKILL);
        pid = waitpid(-1, &status, 0);
        if (pid > 0) note_end(command, pid, status);
        if (pid < 0 && errno != EINTR) return;
    }
}

/* ------------------------------------------------------------------------------------------------------------------ the watch */

/* Read the signals that came. True: the runtime wants the container ended. Whoever is inside of it has a process id here, and may put
 * any into a signal only with a negative code. */
static bool take_signals(int signals) {
    struct signalfd_siginfo got[16];
    ssize_t size = read(signals, got, sizeof got);
    bool asked = false;
    for (size_t at = 0; size > 0 && at < (size_t)size / sizeof got[0]; at++) {
        int number = (int)got[at].ssi_signo;
        if (number == SIGCHLD || number == SIGCONT) continue;
        if (got[at].ssi_code == SI_USER && got[at].ssi_pid == 0) asked = true;
    }
    return asked;
}

struct supervised {
    struct limits limits;
    struct ring ring;
    struct view view;
    struct command command;
    int signals;
    bool open; /* the command's output may bring more */
};

/* Give the node back what the agent has put into the termination message: it counts for no limit, and ours replaces it in the end. */
static void cut_last_words(void) {
    struct stat info;
    if (termination < 0 || fstat(termination, &info) != 0 || info.st_blocks * 512 <= MOST_LAST_WORDS) return;
    if (ftruncate(termination, 0) != 0) errno = 0;
}

/* What is looked at every now and then; the exit code when it is time to end, else 0. */
static int look(struct supervised *all, unsigned long tick) {
    cut_last_words();
    if (faccessat(AT_FDCWD, "/ctl/full", F_OK, AT_SYMLINK_NOFOLLOW) == 0) return OUT_OF_DISK;
    if (faccessat(AT_FDCWD, "/ctl/stop", F_OK, AT_SYMLINK_NOFOLLOW) == 0) return STOPPED;
    if (tick % SAMPLE_TICKS != 0) return 0;
    if (killed_for_memory(&all->view) > 0) return OUT_OF_MEMORY;
    return count_threads(&all->view, all->limits.processes) > all->limits.processes ? TOO_MANY_PROCESSES : 0;
}

/* Wait until there is a reason to end: an exit code of ours, or 0 when the command has ended. */
static int watch(struct supervised *all) {
    int64_t begun = now_ms(), next = begun;
    double most = all->limits.wall_seconds * 1000;
    for (unsigned long tick = 0;;) {
        struct pollfd files[2] = {{.fd = all->signals, .events = POLLIN}, {.fd = all->open ? all->command.output : -1, .events = POLLIN}};
        int64_t left = next - now_ms();
        poll(files, 2, left > 0 ? (int)left : 0);
        if (files[0].revents != 0 && take_signals(all->signals)) return TERMINATED;
        if (files[1].revents != 0) all->open = take_output(&all->ring, all->command.output) || errno == EAGAIN;
        reap(&all->command);
        if (all->command.status != -1) return 0;
        if ((double)(now_ms() - begun) >= most) return DEADLINE;
        if (now_ms() < next) continue;
        int reason = look(all, tick++);
        if (reason != 0) return reason;
        next = now_ms() + TICK_MS;
    }
}

/* ----------------------------------------------------------------------------------------------------------------- the ending */

static const char *cause_of(int reason, bool could_run) {
    switch (reason) {
        case OUT_OF_MEMORY: return "out_of_memory";
        case OUT_OF_DISK: return "out_of_disk";
        case TOO_MANY_PROCESSES: return "processes";
        case DEADLINE: return "deadline";
        case STOPPED: return "stopped";
        case TERMINATED: return "terminated";
        default: return could_run ? "exited" : "cannot_run";
    }
}

static void number_or_null(char *text, size_t room, bool known, int value) {
    if (known) snprintf(text, room, "%d", value);
    else snprintf(text, room, "null");
}

/* Write how it ended where the freezer and the kubelet look. */
static void write_ending(const struct supervised *all, int reason, double started, int file) {
    char text[512], code[16], signal_name[16];
    int status = all->command.status, problem = 0;
    bool could_run = read(all->command.failure, &problem, sizeof problem) != (ssize_t)sizeof problem;
    number_or_null(code, sizeof code, WIFEXITED(status), WEXITSTATUS(status));
    number_or_null(signal_name, sizeof signal_name, WIFSIGNALED(status), WTERMSIG(status));
    int size = snprintf(text, sizeof text,
                        "{\"cause\":\"%s\",\"code\":%s,\"signal\":%s,\"errno\":%d,\"started\":%.3f,\"ended\":%.3f,"
                        "\"oom_kills\":%lu,\"processes\":%lu,\"printed\":%llu}\n",
                        cause_of(reason, could_run), code, signal_name, problem, started, wall_clock(), killed_for_memory(&all->view),
                        all->view.most, (unsigned long long)all->ring.printed);
    int place = back_in_place(file, "ending");
    write_at(place, text, (size_t)size, 0);
    if (ftruncate(place, size) != 0) tell("cannot cut /log/ending: %s", strerror(errno));
    if (termination < 0) return;
    if (ftruncate(termination, 0) == 0) write_at(termination, text, (size_t)size, 0);
}

static int exit_code(int reason, int status) {
    if (reason != 0) return reason;
    if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
    int code = WEXITSTATUS(status);
    return code >= LOWEST_OF_OURS && code <= HIGHEST_OF_OURS ? TAKEN : code;
}

/* --------------------------------------------------------------------------------------------------------------------- run */

static int fail(int code, const char *what) {
    tell("%s: %s", what, strerror(errno));
    if (termination >= 0) dprintf(termination, "{\"cause\":\"%s\",\"errno\":%d}\n", code == CANNOT_LOCK ? "cannot_lock" : "cannot_start", errno);
    return code;
}

/* The second proof of death: whoever gets this lock knows that nothing of the agent is alive. */
static bool lock_alive(void) {
    int file = open("/ctl/alive", O_RDONLY | O_CLOEXEC);
    struct timespec pause = {.tv_nsec = 10000000};
    if (file < 0) return false;
    for (int tries = 0; flock(file, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK || tries == LOCK_TRIES) return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

/* Nothing of whoever started us goes on to the agent, and none of our files gets a standard number. */
static void own_descriptors(void) {
    int file;
    do file = open("/dev/null", O_RDWR);
    while (file >= 0 && file <= STDERR_FILENO);
    close_range(3, ~0U, 0);
}

static bool write_started(double started) {
    int file = make_log("started", 0);
    if (file < 0) return false;
    bool done = dprintf(file, "%.3f\n", started) > 0;
    close(file);
    return done;
}

static int run(char **command) {
    static struct supervised all;
    sigset_t every;
    prctl(PR_SET_DUMPABLE, 0);
    own_descriptors();
    termination = open("/dev/termination-log", O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (getpid() != 1) return tell("this must be the first process of a container: it kills all it can see"), CANNOT_START;
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, NULL);
    all.signals = signalfd(-1, &every, SFD_CLOEXEC | SFD_NONBLOCK);
    log_folder = open("/log", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (all.signals < 0 || log_folder < 0) return fail(CANNOT_START, "cannot open /log");
    if (!read_limits(&all.limits)) return fail(CANNOT_START, "cannot read the limits in /ctl/limits");
    if (!lock_alive()) return fail(CANNOT_LOCK, "cannot lock /ctl/alive");
    int ending = make_log("ending", 4096);
    if (ending < 0 || !open_ring(&all.ring, all.limits.output_bytes)) return fail(CANNOT_START, "cannot make the files in /log");
    open_view(&all.view);
    double started = wall_clock();
    if (!write_started(started)) return fail(CANNOT_START, "cannot write /log/started");
    if (!guard()) return fail(CANNOT_START, "cannot refuse system calls");
    if (!start(&all.command, command)) return fail(CANNOT_START, "cannot start a process");
    all.open = true;
    int reason = watch(&all);
    end_everything(&all.command);
    while (take_output(&all.ring, all.command.output)) continue;
    if (reason == 0 && killed_for_memory(&all.view) > 0) reason = OUT_OF_MEMORY;
    close_ring(&all.ring);
    write_ending(&all, reason, started, ending);
    return exit_code(reason, all.command.status);
}

static int become_guarded(char **command) {
    if (!guard()) return tell("cannot refuse system calls: %s", strerror(errno)), CANNOT_RUN;
    execvp(command[0], command);
    int problem = errno;
    tell("cannot run %s: %s", command[0], strerror(problem));
    return problem == ENOENT ? NOT_FOUND : CANNOT_RUN;
}

int main(int count, char **words) {
    bool complete = count > 3 && strcmp(words[2], "--") == 0;
    if (complete && strcmp(words[1], "run") == 0) return run(words + 3);
    if (complete && strcmp(words[1], "guard") == 0) return become_guarded(words + 3);
    fputs("usage: supervisor run|guard -- COMMAND…\n", stderr);
    return 2;
}
