#include "runtime/change/crew.h"

#include <pthread.h>
#include <sched.h>

struct member {
    struct crew c;
    int (*f)(const struct crew *c, struct err **e);
    pthread_t thread;
    bool started;
    bool *over;
    struct err *e;
    int rc;
};

static void *work(void *arg)
{
    struct member *m = arg;
    m->rc = m->f(&m->c, &m->e);
    if (m->rc < 0)
        __atomic_store_n(m->over, true, __ATOMIC_RELAXED);
    return NULL;
}

static size_t members(size_t n)
{
    cpu_set_t set;
    size_t cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
    size_t most = cpus < CREW_MAX ? cpus : CREW_MAX;
    return n < most ? n : most;
}

int crew_run(size_t n, bool alone, int (*f)(const struct crew *c, struct err **e), void *arg,
             struct err **e)
{
    struct member m[CREW_MAX];
    size_t count = alone || n < 2 ? 1 : members(n);
    bool over = false;
    int rc = 0;

    for (size_t i = 0; i < count; i++)
        m[i] = (struct member){
            .c = { .from = n * i / count, .to = n * (i + 1) / count, .arg = arg, .over = &over },
            .f = f,
            .over = &over
        };
    for (size_t i = 1; i < count; i++)
        m[i].started = pthread_create(&m[i].thread, NULL, work, &m[i]) == 0;
    for (size_t i = 0; i < count; i++) {
        if (m[i].started)
            (void)pthread_join(m[i].thread, NULL);
        else
            work(&m[i]); /* the first is ours, and so is one for which there was no thread */
    }
    for (size_t i = 0; i < count; i++) {
        if (m[i].rc < 0 && rc == 0) {
            rc = m[i].rc;
            if (e)
                *e = m[i].e;
            else
                err_free_p(&m[i].e);
        } else {
            err_free_p(&m[i].e);
        }
    }
    return rc;
}
