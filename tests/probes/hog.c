/* hog MIB: takes that much memory and writes to every page; never more than 1 GiB. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int mib = argc > 1 ? atoi(argv[1]) : 64;

    puts("STARTED");
    fflush(stdout);
    for (int i = 0; i < mib && i < 1024; i++) {
        volatile char *p = malloc(1 << 20);
        if (!p) {
            printf("NOMEM at %d\n", i);
            return 3;
        }
        for (int k = 0; k < 1 << 20; k += 4096)
            p[k] = 1;
    }
    printf("GOT %d\n", mib);
    return 0;
}
