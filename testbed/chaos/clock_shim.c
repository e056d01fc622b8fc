/* Preloaded into a daemon: its wall clock is off by as many seconds as a mapped file says, and the
 * machine's own is left alone. Whatever reads the time through libc is told so; monotonic time, and
 * the kernel's own stamps on packets, are not. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *offset_s;
static int (*get)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
	const char *file = getenv("DRLD_CHAOS_CLOCK");
	int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;

	get = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	if (fd < 0)
		return;
	void *memory = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, fd, 0);
	if (memory != MAP_FAILED)
		offset_s = memory;
	close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int failed = get(clock, now);

	if (!failed && offset_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *offset_s;
	return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec exact;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &exact);
	now->tv_sec = exact.tv_sec;
	now->tv_usec = exact.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *now)
{
	struct timespec exact;

	clock_gettime(CLOCK_REALTIME, &exact);
	if (now)
		*now = exact.tv_sec;
	return exact.tv_sec;
}
