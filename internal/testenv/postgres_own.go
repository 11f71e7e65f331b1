// SPDX-License-Identifier: Apache-2.0

package testenv

import "syscall"

// PostgresBinaries is for tests that start servers of their own, to kill or starve
// them: the folder with postgres and initdb, which are installed where there are none
// and that can be, and the user that they are to run as, nil for the test's own.
func PostgresBinaries() (dir string, owner *syscall.Credential, err error) {
	if dir, err = postgresBinaries(); err != nil {
		return "", nil, err
	}
	owner, err = unprivileged()
	return dir, owner, err
}
