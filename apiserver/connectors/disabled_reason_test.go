// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func TestGetConnector_ShowsDisabledReasonOfSchedule(t *testing.T) {
	t.Parallel()
	off := false
	c := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}, Spec: v1alpha1.ConnectorSpec{Cron: &v1alpha1.CronConnector{}}}
	c.MarkRoutesReady()
	require.Nil(t, disabledReason(c))
	c.Spec.Enabled = &off
	require.Contains(t, *disabledReason(c), "its schedule continues")
	c.MarkDisabled()
	require.Equal(t, "disabled", *disabledReason(c))
}
