// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"errors"
	"syscall"
)

// tcpUserTimeout is the option of tcp(7), which package syscall does not have.
const tcpUserTimeout = 0x12

// setUserTimeout makes the kernel close a connection if the server acknowledges no data.
func setUserTimeout(_, _ string, raw syscall.RawConn) (err error) {
	controlled := raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(ackTimeout.Milliseconds()))
	})
	return errors.Join(controlled, err)
}
