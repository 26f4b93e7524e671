/* The wall clock of a process, off by what a file says: 8 bytes, nanoseconds.
   It is preloaded (LD_PRELOAD); the file is named by LATCHKEY_PGTEST_CLOCK and
   may be written at any time. Other clocks, as the monotonic one, are left alone. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void)
{
	const char *path = getenv("LATCHKEY_PGTEST_CLOCK");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0)
		return;
	void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (mapped != MAP_FAILED)
		offset = mapped;
}

/* Not by way of the C library, whose function this replaces. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
	int failed = (int)syscall(SYS_clock_gettime, clock, t);
	if (failed || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return failed;
	int64_t all = (int64_t)t->tv_sec * SECOND + t->tv_nsec + *offset;
	t->tv_sec = all / SECOND;
	t->tv_nsec = all % SECOND;
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t)
		*t = now.tv_sec;
	return now.tv_sec;
}
