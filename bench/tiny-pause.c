/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for ever, in as little memory as a process can have: what is measured is the box around it. */
_Noreturn void _start(void);

_Noreturn void _start(void)
{
	for (;;) {
#if defined(__x86_64__)
		long call = 34;

		__asm__ volatile("syscall" : "+a"(call) : : "rcx", "r11", "memory");
#elif defined(__aarch64__)
		/* ppoll(NULL, 0, NULL, NULL) */
		register long number __asm__("x8") = 73, a __asm__("x0") = 0, b __asm__("x1") = 0, c __asm__("x2") = 0,
			      d __asm__("x3") = 0;

		__asm__ volatile("svc 0" : "+r"(a) : "r"(number), "r"(b), "r"(c), "r"(d) : "memory");
#else
#error "pause for this architecture"
#endif
	}
}
