// SPDX-License-Identifier: Apache-2.0

package testenv

import "syscall"

// PostgresBinaries is for tests that start their own servers, to kill or starve them. It returns
// the folder with postgres and initdb, which it installs if needed, and the user for the servers,
// or nil for the test's own user.
func PostgresBinaries() (dir string, owner *syscall.Credential, err error) {
	if dir, err = postgresBinaries(); err != nil {
		return "", nil, err
	}
	owner, err = unprivileged()
	return dir, owner, err
}
