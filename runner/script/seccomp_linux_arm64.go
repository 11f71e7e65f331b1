// SPDX-License-Identifier: Apache-2.0

package script

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archCalls are further system calls of this architecture.
var archCalls []uint32
