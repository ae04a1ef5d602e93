/* signals N: says ready once the signal N can no longer be missed, waits for it, says that it came,
 * exits with 33. A shell's trap is no measure: bash can lose a SIGINT that comes as it begins to wait
 * for a child. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int want = argc > 1 ? atoi(argv[1]) : SIGTERM, got = 0;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, want);
    sigprocmask(SIG_BLOCK, &set, NULL);
    puts("ready");
    fflush(stdout);
    if (sigwait(&set, &got) != 0)
        return 1;
    printf("got %d\n", got);
    return 33;
}
