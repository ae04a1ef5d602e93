/* forks N: makes up to N children that only wait, says how many there were, ends them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int want = argc > 1 ? atoi(argv[1]) : 100, made = 0;
    pid_t *pids = calloc((size_t)want, sizeof *pids);

    puts("STARTED");
    fflush(stdout);
    for (; made < want; made++) {
        pids[made] = fork();
        if (pids[made] < 0)
            break;
        if (pids[made] == 0) {
            alarm(60);
            for (;;)
                pause();
        }
    }
    printf("FORKED %d\n", made);
    for (int i = 0; i < made; i++)
        kill(pids[i], SIGKILL);
    while (wait(NULL) > 0)
        ;
    return 0;
}
