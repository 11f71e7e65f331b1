// SPDX-License-Identifier: Apache-2.0

package base

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OldestFirst orders objects by creation time, then by name.
func OldestFirst[O metav1.Object](a, b O) int {
	at, before := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(at.Compare(before.Time), strings.Compare(a.GetName(), b.GetName()))
}
