// SPDX-License-Identifier: Apache-2.0

package platformkeys

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWriter_IsLastFieldManager(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	by := func(manager string, after time.Duration) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(created.Add(after))
		return metav1.ManagedFieldsEntry{Manager: manager, Time: &at}
	}
	for name, test := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   string
	}{
		"no managed fields":            {nil, ""},
		"creator in the second before": {[]metav1.ManagedFieldsEntry{by("manager", -time.Second)}, "manager"},
		"writer after the creator":     {[]metav1.ManagedFieldsEntry{by("manager", 0), by("kubectl-patch", time.Hour)}, "kubectl-patch"},
		"entries in any order":         {[]metav1.ManagedFieldsEntry{by("kubectl-patch", time.Hour), by("manager", 0)}, "kubectl-patch"},
		"entry without a time":         {[]metav1.ManagedFieldsEntry{by("manager", 0), {Manager: "old"}}, "manager"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created, ManagedFields: test.fields}}
			if got := lastWriter(secret); got != test.want {
				t.Errorf("the writer is %q, not %q", got, test.want)
			}
		})
	}
}
