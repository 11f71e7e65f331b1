// SPDX-License-Identifier: Apache-2.0

//go:build !linux || (!amd64 && !arm64)

package script

// filterCalls does nothing: there is no filter for this system.
func filterCalls() error { return nil }

func canFilterCalls() bool { return false }
