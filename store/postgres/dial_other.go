// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package postgres

import "syscall"

// setUserTimeout does nothing: this system has no such option.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
