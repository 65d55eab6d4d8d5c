/* A client at C speed: `sink SOCKET WHAT TURNS` follows WHAT ("*" or a session id) until TURNS turns have completed.
 * `sink - raw 0` counts the lines of its stdin up to EOF instead.
 *
 * It prints "ready" once it follows, and at its end one JSON line: events, bytes, deltas, and the sorted ages in ns of the
 * lines that carried a stamp (the time from their write to our read).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t *ages;
static size_t aged, room;
static uint64_t events, bytes, turns, lines;

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void age(const char *at, const char *end, uint64_t arrived) {
    if (end - at < 23) return;
    if (aged == room) {
        room = room ? room * 2 : 4096;
        ages = realloc(ages, room * sizeof *ages);
    }
    uint64_t when = strtoull(at + 7, NULL, 10);
    if (when && when < arrived) ages[aged++] = arrived - when;
}

/* The type of an event stands in the first bytes of its envelope. */
static void take(const char *line, const char *end, uint64_t arrived) {
    lines++;
    size_t head = (size_t)(end - line) < 320 ? (size_t)(end - line) : 320;
    if (memmem(line, head, "\"session/event\"", 15)) events++;
    if (memmem(line, head, "\"type\":\"turn_completed\"", 23)) turns++;
    const char *word = memmem(line, (size_t)(end - line) < 4096 ? (size_t)(end - line) : 4096, "@STAMP-", 7);
    if (word) age(word, end, arrived);
}

static int follow(const char *path, const char *what) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) { perror(path); exit(1); }
    char words[1024];
    int size = snprintf(words, sizeof words,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"client\":{\"name\":\"sink\",\"version\":\"1\"}}}\n"
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/subscribe\",\"params\":{\"session_id\":\"%s\"}}\n", what);
    if (write(fd, words, (size_t)size) != size) { perror("write"); exit(1); }
    return fd;
}

int main(int argc, char **argv) {
    if (argc != 4) { fprintf(stderr, "usage: sink SOCKET WHAT TURNS\n"); return 2; }
    int raw = !strcmp(argv[2], "raw"), fd = raw ? 0 : follow(argv[1], argv[2]), ready = raw;
    uint64_t wanted = strtoull(argv[3], NULL, 10);
    size_t size = 0, space = 1 << 20;
    char *buffer = malloc(space);
    if (raw) { puts("ready"); fflush(stdout); }
    while (raw || turns < wanted) {
        if (size == space) buffer = realloc(buffer, space *= 2);
        ssize_t got = read(fd, buffer + size, space - size);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        uint64_t arrived = now();
        bytes += (uint64_t)got;
        char *line = buffer, *end = buffer + size + got, *from = buffer + size, *stop;
        while ((stop = memchr(from, '\n', (size_t)(end - from)))) {
            take(line, stop, arrived);
            if (!ready && memmem(line, (size_t)(stop - line), "\"id\":2", 6)) {
                if (memmem(line, (size_t)(stop - line), "\"error\"", 7)) { fprintf(stderr, "%.*s\n", (int)(stop - line), line); return 1; }
                ready = 1;
                puts("ready");
                fflush(stdout);
            }
            line = from = stop + 1;
        }
        size = (size_t)(end - line);
        memmove(buffer, line, size);
    }
    qsort(ages, aged, sizeof *ages, by_size);
    printf("{\"events\":%llu,\"lines\":%llu,\"bytes\":%llu,\"turns\":%llu,\"ended\":%llu,\"stamped\":%zu,\"ages\":[",
        (unsigned long long)events, (unsigned long long)lines, (unsigned long long)bytes, (unsigned long long)turns,
        (unsigned long long)now(), aged);
    for (int i = 0; aged && i <= 1000; i++) printf("%s%llu", i ? "," : "", (unsigned long long)ages[(aged - 1) * (size_t)i / 1000]);
    puts("]}");
    return 0;
}
