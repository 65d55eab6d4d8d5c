/* One hop at C speed: `relay FD...` copies what comes on its file descriptors to its stdout, as it comes, until all have
 * ended. It parses nothing.
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
    if (argc < 2) { fprintf(stderr, "usage: relay FD...\n"); return 2; }
    static char block[BLOCK];
    int left = argc - 1, poll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 1; i < argc; i++) {
        int fd = atoi(argv[i]);
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
            epoll_ctl(poll, EPOLL_CTL_DEL, fd, NULL); /* whoever started us may still hold it: closed, it would be told for ever */
            /* closing is not enough: whoever started us may hold the pipe, too, and epoll knows the pipe, not our number */
            epoll_ctl(poll, EPOLL_CTL_DEL, fd, NULL);
            close(fd);
            left--;
        }
    }
    return 0;
}
