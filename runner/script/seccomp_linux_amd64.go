// SPDX-License-Identifier: Apache-2.0

package script

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archCalls are further system calls of this architecture. A new thread sets its thread-local storage.
var archCalls = []uint32{unix.SYS_ARCH_PRCTL}
