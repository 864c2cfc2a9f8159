/* SPDX-License-Identifier: Apache-2.0 */
/* /bin/true without a C library: what is measured is the box around it. */
_Noreturn void _start(void);

_Noreturn void _start(void)
{
#if defined(__x86_64__)
	__asm__ volatile("syscall" : : "a"(231L), "D"(0L) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long number __asm__("x8") = 94, status __asm__("x0") = 0;

	__asm__ volatile("svc 0" : : "r"(number), "r"(status) : "memory");
#else
#error "exit_group for this architecture"
#endif
	__builtin_unreachable();
}
