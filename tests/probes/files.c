/* files N DIR: makes up to N empty files, says how many and what stopped it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int want = argc > 1 ? atoi(argv[1]) : 100, made = 0;

    puts("STARTED");
    fflush(stdout);
    if (argc > 2 && chdir(argv[2]) < 0)
        return 2;
    for (; made < want; made++) {
        char name[32];
        snprintf(name, sizeof name, "f%d", made);
        int fd = open(name, O_CREAT | O_WRONLY | O_EXCL, 0600);
        if (fd < 0)
            break;
        close(fd);
    }
    printf("MADE %d %s\n", made, made < want ? strerror(errno) : "all");
    return 0;
}
