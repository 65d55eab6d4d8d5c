/* One hop at C speed: `relay FIRST COUNT` copies what comes on its file descriptors FIRST .. FIRST+COUNT-1 to its stdout, as
 * it comes, until all have ended. It parses nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define BLOCK (64 * 1024)

static void say(const char *data, size_t size) {
    while (size) {
        ssize_t done = write(1, data, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) exit(1);
        data += done;
        size -= (size_t)done;
    }
}

int main(int argc, char **argv) {
    if (argc != 3) { fprintf(stderr, "usage: relay FIRST COUNT\n"); return 2; }
    static char block[BLOCK];
    int first = atoi(argv[1]), left = atoi(argv[2]), poll = epoll_create1(EPOLL_CLOEXEC);
    for (int fd = first; fd < first + left; fd++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event)) { perror("epoll_ctl"); return 1; }
    }
    while (left) {
        struct epoll_event events[64];
        int count = epoll_wait(poll, events, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            ssize_t got = read(fd, block, BLOCK);
            if (got > 0) { say(block, (size_t)got); continue; }
            if (got < 0 && errno == EINTR) continue;
            close(fd);
            left--;
        }
    }
    return 0;
}
