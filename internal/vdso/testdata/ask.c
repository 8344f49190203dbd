// Loads the vDSO as the C library loads any object and asks it the time.
//
//   ask IMAGE CLOCK_PAGE <clocks
//
// Each input line is a clock page: tsc0 mult mono0 real0. Each output line is
// one call: function argument result tsc_before tsc_after kernel_before
// kernel_after seconds fraction, where the kernel's values are what the real
// system call gave, in the fraction's unit.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static uint64_t tsc(void) {
	uint32_t lo, hi;
	__asm__ volatile("lfence; rdtsc; lfence" : "=a"(lo), "=d"(hi)::"memory");
	return (uint64_t)hi << 32 | lo;
}

static void die(const char *what) {
	const char *dl = dlerror();
	fprintf(stderr, "%s: %s\n", what, dl ? dl : strerror(errno));
	exit(1);
}

static void *find(void *object, const char *name) {
	void *f = dlvsym(object, name, "LINUX_2.6");
	if (!f) die(name);
	return f;
}

static int64_t kernel_clock(int id) {
	struct timespec t = {0, 0};
	syscall(SYS_clock_gettime, id, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int64_t kernel_day(void) {
	struct timeval t = {0, 0};
	syscall(SYS_gettimeofday, &t, NULL);
	return t.tv_sec * INT64_C(1000000) + t.tv_usec;
}

static void report(const char *f, int arg, long result, uint64_t t0, uint64_t t1,
		   int64_t k0, int64_t k1, long s, long frac) {
	printf("%s %d %ld %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %ld %ld\n",
	       f, arg, result, t0, t1, k0, k1, s, frac);
}

int main(int argc, char **argv) {
	if (argc != 3) return 2;
	// One processor, so that its counter brackets what the object reads.
	cpu_set_t all, one;
	if (sched_getaffinity(0, sizeof all, &all)) die("sched_getaffinity");
	int cpu = 0;
	while (!CPU_ISSET(cpu, &all)) cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof one, &one)) die("sched_setaffinity");

	void *page = mmap((void *)strtoull(argv[2], NULL, 0), 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (page == MAP_FAILED) die("clock page");
	void *object = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (!object) die("dlopen");
	int (*clock_get)(int, struct timespec *) = find(object, "__vdso_clock_gettime");
	int (*day)(struct timeval *, struct timezone *) = find(object, "__vdso_gettimeofday");
	time_t (*seconds)(time_t *) = find(object, "__vdso_time");
	int (*getcpu_)(unsigned *, unsigned *, void *) = find(object, "__vdso_getcpu");

	uint64_t in[4];
	while (scanf("%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, in, in + 1, in + 2, in + 3) == 4) {
		memcpy(page, in, sizeof in);
		for (int id = -1; id <= 12; id++) {
			struct timespec t = {0, 0};
			int64_t k0 = kernel_clock(id);
			uint64_t t0 = tsc();
			int r = clock_get(id, &t);
			uint64_t t1 = tsc();
			report("clock_gettime", id, r, t0, t1, k0, kernel_clock(id), t.tv_sec, t.tv_nsec);
		}
		for (int with = 0; with <= 1; with++) {
			struct timeval t = {0, 0};
			struct timezone z = {-1, -1};
			int64_t k0 = kernel_day();
			uint64_t t0 = tsc();
			int r = day(&t, with ? &z : NULL);
			uint64_t t1 = tsc();
			// The host's kernel has its own zone; zero is the answer for both
			// only where the object answers.
			if (with && in[1] && (z.tz_minuteswest || z.tz_dsttime)) die("timezone");
			report("gettimeofday", with, r, t0, t1, k0, kernel_day(), t.tv_sec, t.tv_usec);
		}
		if (day(NULL, NULL)) die("gettimeofday(NULL, NULL)");
		for (int with = 0; with <= 1; with++) {
			time_t out = 0;
			int64_t k0 = syscall(SYS_time, NULL);
			uint64_t t0 = tsc();
			time_t r = seconds(with ? &out : NULL);
			uint64_t t1 = tsc();
			if (with && out != r) die("time");
			report("time", with, 0, t0, t1, k0, syscall(SYS_time, NULL), r, 0);
		}
		unsigned c = 77, n = 77;
		if (getcpu_(&c, &n, NULL) || c || n) die("getcpu");
		if (getcpu_(NULL, NULL, NULL)) die("getcpu(NULL, NULL)");
	}
	return 0;
}
