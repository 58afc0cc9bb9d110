// Halts in the middle of what a thread does, at any instruction, as a scheduler makes them: a timer's signal, whose
// handler waits for a while.  Timers are the kernel's own (timer_create(2)), aimed at one thread: the C library's would
// ask for another library to be linked before glibc 2.17, and setitimer's are the process's.
#pragma once
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

class Halts {
 public:
  // For the calling thread, one object at a time; `works` is false where the kernel gives no timer.
  Halts() {
    struct sigaction action {};
    action.sa_handler = halt;
    action.sa_flags = SA_RESTART;
    sigaction(number(), &action, &before);
    Event event{};
    event.signal = number(), event.notify = TO_THREAD, event.thread = int(syscall(SYS_gettid));
    works = syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) == 0;
    if (!works) {  // where Linux is emulated, say: then the process, whose first thread, this one, is preferred
      event.notify = TO_PROCESS;
      works = syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) == 0;
    }
    count = 0;
  }
  ~Halts() {
    if (works) syscall(SYS_timer_delete, timer);
    sigaction(number(), &before, nullptr);
  }
  Halts(const Halts&) = delete;

  // Once, so many nanoseconds from now, for so long.
  void arm(u64 after, u64 nanoseconds) {
    length = nanoseconds;
    set(after);
  }
  void disarm() { set(0); }
  unsigned made() const { return count; }

  bool works;

 private:
  struct Event {  // the kernel's sigevent
    void* value;
    int signal, notify, thread, rest[11];
  };
  static constexpr int TO_THREAD = 4, TO_PROCESS = 0;  // SIGEV_THREAD_ID, SIGEV_SIGNAL

  static int number() { return SIGRTMAX - 2; }

  static void halt(int) {
    const int error = errno;
    count++;
    const u64 wait = length;
    ::stall(wait);
    errno = error;
  }

  void set(u64 after) {
    const struct { timespec interval, value; } when{{0, 0}, {time_t(after / 1000000000), long(after % 1000000000)}};
    syscall(SYS_timer_settime, timer, 0, &when, nullptr);
  }

  static inline volatile u64 length;
  static inline volatile unsigned count;
  struct sigaction before;
  int timer;
};
