// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package postgres

import "syscall"

// giveUp does nothing: this system has no such option.
func giveUp(string, string, syscall.RawConn) error { return nil }
