/* A CLI at C speed: it takes claude's arguments and says recorded frames, on a word in its prompt.
 *
 * The prompt is `bench MODE GATE DIRECTORY COUNT RATE`: it says DIRECTORY/init (with its own session id), waits until GATE is
 * free (flock), says DIRECTORY/body until COUNT lines are out, then DIRECTORY/result.
 *   flood  as fast as the pipe takes it
 *   pace   RATE lines a second, a write each; a line with the word @STAMP... carries the time at which it was written;
 *          then half a second of silence
 *   hold   the other way round: all of its lines, then the wait
 *   start  like flood; its first line carries the time at which main() began
 * With `--input-format stream-json` it answers `initialize`, takes its prompt from a user message, and stays until its stdin
 * ends, as claude does.
 * When COUNT lines are out it appends to GATE.cpu a line with what that took: ns of processor time of its own, and of its
 * parent (a keeper, for a CLI of clisup), which may be gone before anybody else can ask.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STAMP "@STAMP-0000000000000000"
#define STAMP_LENGTH (sizeof STAMP - 1)
#define BLOCK (64 * 1024)

typedef struct { char *data; size_t size; } Text;

static const char *session = "00000000-0000-4000-8000-000000000000";

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void say(const char *data, size_t size) {
    while (size) {
        ssize_t done = write(1, data, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) exit(1); /* nobody reads any more */
        data += done;
        size -= (size_t)done;
    }
}

static Text load(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) fail(path);
    Text text = {malloc((size_t)st.st_size + 1), 0};
    while (text.size < (size_t)st.st_size) {
        ssize_t got = read(fd, text.data + text.size, (size_t)st.st_size - text.size);
        if (got <= 0) fail(path);
        text.size += (size_t)got;
    }
    text.data[text.size] = 0;
    close(fd);
    return text;
}

static void stamp(char *at, uint64_t when) {
    char digits[32];
    snprintf(digits, sizeof digits, "@STAMP-%016llu", (unsigned long long)when);
    memcpy(at, digits, STAMP_LENGTH);
}

static void say_init(const char *directory) {
    Text init = load(directory, "init");
    char *at = strstr(init.data, "@SESSION@");
    if (!at) { say(init.data, init.size); return; }
    say(init.data, (size_t)(at - init.data));
    say(session, strlen(session));
    say(at + 9, init.size - (size_t)(at - init.data) - 9);
    free(init.data);
}

static void flood(Text body, long count) {
    char *at = body.data, *end = body.data + body.size;
    while (count > 0) {
        char *stop = at;
        while (count > 0 && stop < end && stop - at < BLOCK) {
            stop = memchr(stop, '\n', (size_t)(end - stop));
            stop++;
            count--;
        }
        say(at, (size_t)(stop - at));
        at = stop == end ? body.data : stop;
    }
}

static void pace(Text body, long count, double rate) {
    char *at = body.data, *end = body.data + body.size;
    uint64_t step = (uint64_t)(1e9 / rate), due = now() + ((uint64_t)getpid() * 0x9E3779B97F4A7C15u >> 16) % step; /* not all in one breath: neighbours far apart */
    for (; count > 0; count--, due += step) {
        struct timespec until = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {}
        char *stop = memchr(at, '\n', (size_t)(end - at));
        stop++;
        char *word = memmem(at, (size_t)(stop - at), "@STAMP-", 7);
        if (word) stamp(word, now());
        say(at, (size_t)(stop - at));
        at = stop == end ? body.data : stop;
    }
    struct timespec silence = {0, 500000000}; /* a hundred turns that end within a step are no part of the pace */
    while (nanosleep(&silence, &silence) && errno == EINTR) {}
}

static uint64_t cpu_of(pid_t pid) {
    clockid_t id;
    struct timespec t;
    if (clock_getcpuclockid(pid, &id) || clock_gettime(id, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Until the reader has taken all of it: a pipe may hold 1 MiB, which would not be in the reader's account. */
static void drained(void) {
    struct timespec pause = {0, 500000};
    for (int left, tries = 0; tries < 20000 && !ioctl(1, FIONREAD, &left) && left; tries++) nanosleep(&pause, NULL);
}

static void account(const char *gate, uint64_t own, uint64_t parent) {
    char path[1100], line[64];
    own = cpu_of(getpid()) - own; /* without the wait */
    drained();
    snprintf(path, sizeof path, "%s.cpu", gate);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) return; /* nobody asked */
    int size = snprintf(line, sizeof line, "%llu %llu\n", (unsigned long long)own,
        (unsigned long long)(cpu_of(getppid()) - parent));
    if (write(fd, line, (size_t)size) != size) fail(path);
    close(fd);
}

static char *read_prompt(int streaming) {
    static char prompt[64 * 1024];
    size_t size = 0;
    for (;;) {
        ssize_t got = read(0, prompt + size, sizeof prompt - 1 - size);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        size += (size_t)got;
        prompt[size] = 0;
        if (!streaming) continue;
        char *ask = strstr(prompt, "\"initialize\""), *id = strstr(prompt, "\"request_id\"");
        if (ask && id && strchr(id, '\n')) {
            char answer[512], *from = strchr(id + 12, '"') + 1;
            int length = snprintf(answer, sizeof answer, "{\"type\":\"control_response\",\"response\":{\"subtype\":\"success\","
                "\"request_id\":\"%.*s\",\"response\":{\"commands\":[]}}}\n", (int)(strchr(from, '"') - from), from);
            say(answer, (size_t)length);
            size = 0;
            prompt[0] = 0;
            continue;
        }
        if (strstr(prompt, "bench ") && strchr(prompt, '\n')) break;
    }
    return strstr(prompt, "bench ");
}

int main(int argc, char **argv) {
    uint64_t began = now();
    int streaming = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--version") || !strcmp(argv[i], "-v")) { puts("2.1.329 (Claude Code)"); return 0; }
        if (!strcmp(argv[i], "--input-format")) streaming = 1;
        if (!strcmp(argv[i], "--session-id") && i + 1 < argc) session = argv[i + 1];
        if (!strncmp(argv[i], "--session-id=", 13)) session = argv[i] + 13;
        if (!strncmp(argv[i], "--resume=", 9)) session = argv[i] + 9;
        if (!strcmp(argv[i], "--resume") && i + 1 < argc) session = argv[i + 1];
    }
    char mode[16], gate[1024], directory[1024], *prompt = read_prompt(streaming);
    long count;
    double rate;
    if (!prompt || sscanf(prompt, "bench %15s %1023s %1023s %ld %lf", mode, gate, directory, &count, &rate) != 5) {
        fprintf(stderr, "no `bench MODE GATE DIRECTORY COUNT RATE` in the prompt\n");
        return 2;
    }
    say_init(directory);
    Text body = load(directory, "body");
    if (!strcmp(mode, "start")) {
        char *word = strstr(body.data, "@STAMP-");
        if (word) stamp(word, began);
    }
    int fd = open(gate, O_RDONLY), hold = !strcmp(mode, "hold");
    if (fd < 0) fail(gate);
    if (hold) flood(body, count);
    while (flock(fd, LOCK_SH) && errno == EINTR) {}
    uint64_t own = cpu_of(getpid()), parent = cpu_of(getppid());
    if (!strcmp(mode, "pace")) pace(body, count, rate);
    else if (!hold) flood(body, count);
    account(gate, own, parent);
    Text result = load(directory, "result");
    say(result.data, result.size);
    char rest[512];
    while (streaming && (read(0, rest, sizeof rest) > 0 || errno == EINTR)) {}
    return 0;
}
