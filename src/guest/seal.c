/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/seal.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/weaken.h"
#include "sys/seal_filter.h"

#define BIT(cap) (UINT64_C(1) << (cap))

/* What containers commonly have: inside the box's user namespace these mean nothing to the host. */
#define BOX_CAPS                                                                                                \
	(BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FSETID) | BIT(CAP_FOWNER) | BIT(CAP_MKNOD) |            \
	 BIT(CAP_NET_RAW) | BIT(CAP_SETGID) | BIT(CAP_SETUID) | BIT(CAP_SETFCAP) | BIT(CAP_SETPCAP) |             \
	 BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_SYS_CHROOT) | BIT(CAP_KILL) | BIT(CAP_AUDIT_WRITE))

static int set_caps(uint64_t caps)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {
		{ .effective = (uint32_t)caps, .permitted = (uint32_t)caps },
		{ .effective = (uint32_t)(caps >> 32), .permitted = (uint32_t)(caps >> 32) },
	};

	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int seal_box(bool nesting, bool no_setid, unsigned weaken, struct err *e)
{
	const struct sock_fprog *f = &seal_filters[(nesting ? 1 : 0) + (no_setid ? 2 : 0)];
	int r;

	/* Up to the first number the kernel doesn't have: a newer kernel's capabilities go as well. */
	for (unsigned long cap = 0; cap < 64 && !(weaken & WEAKEN_CAPS); cap++) {
		if ((BOX_CAPS & BIT(cap)) && !(no_setid && cap == CAP_SETFCAP))
			continue;
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
			if (errno == EINVAL && cap > CAP_SYS_ADMIN)
				break;
			return err_set(e, -errno, "cannot drop capability %lu of the box", cap);
		}
	}
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_set(e, -errno, "cannot clear the ambient capabilities");
	r = weaken & WEAKEN_CAPS ? 0 : set_caps(BOX_CAPS | BIT(CAP_SYS_ADMIN));
	if (r < 0)
		return err_set(e, r, "cannot reduce the capabilities of the box's init");
	/* Needs CAP_SYS_ADMIN in this user namespace, since no_new_privs would take sudo from the box (seccomp(2)). */
	if (!(weaken & WEAKEN_FILTER) && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, f) < 0)
		return err_set(e, -errno, "cannot load the system call filter of the box");
	return 0;
}

int seal_final(struct err *e)
{
	int r = set_caps(BOX_CAPS);

	return r < 0 ? err_set(e, r, "cannot give up the last capability of the box's init") : 0;
}
