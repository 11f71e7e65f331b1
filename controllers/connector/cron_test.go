// SPDX-License-Identifier: Apache-2.0

package connector_test

import (
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
)

// nightly makes a connector a schedule for three in the morning.
func nightly(c *v1alpha1.Connector) {
	c.Spec.Webhook, c.Spec.Mode = nil, ""
	c.Spec.Cron = &v1alpha1.CronConnector{Schedule: "0 3 * * *", Prompt: "Report", Payload: &runtime.RawExtension{Raw: []byte(`{"a":1}`)}}
}

var _ = Describe("A cron Connector", func() {
	It("ticks, and has neither a URL nor a secret", func(ctx SpecContext) {
		s := newScene(ctx)
		c := s.reconciled(ctx, s.Connector("nightly", nightly))
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		Expect(c.Status.IsTrue(v1alpha1.ConditionRoutesReady)).To(BeTrue())
		Expect(c.Status.Condition(v1alpha1.ConditionSecretReady)).To(BeNil())
		Expect(c.Status.URL).To(BeEmpty())
		Expect(c.Status.SecretName).To(BeEmpty())
		Expect(s.Children(ctx, c.UID)).To(BeEmpty())
		row := s.row(ctx, c)
		Expect([]string{row.Type, row.Mode}).To(Equal([]string{"cron", "inbound"}))
		Expect(row.Secrets).To(BeEmpty())
		Expect(row.Config).To(MatchJSON(`{"schedule":"0 3 * * *","timezone":"UTC","missed_ticks":"skip","prompt":"Report","payload":{"a":1}}`))
		s.ExpectAtRest(ctx, s.r, c)

		active := func() bool {
			times, err := s.Store.TickTimes(ctx, s.Key(c).ProjectID, []uuid.UUID{s.Key(c).ID})
			Expect(err).NotTo(HaveOccurred())
			return times[s.Key(c).ID].Active
		}
		Expect(active()).To(BeTrue())
		c.Spec.Enabled = ptr.To(false)
		s.reconciled(ctx, c)
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		Expect(c.TakesEvents()).To(BeFalse())
		Expect(active()).To(BeFalse())
	})

	It("reports the invalid field, and keeps the last valid configuration", func(ctx SpecContext) {
		s := newScene(ctx)
		c := s.reconciled(ctx, s.Connector("nightly", nightly))
		right := s.row(ctx, c).Config
		for field, change := range map[string]func(*v1alpha1.CronConnector){
			"spec.cron.schedule has \"99\" for th": func(c *v1alpha1.CronConnector) { c.Schedule = "99 99 99 99 99" },
			"spec.cron.schedule must match at":     func(c *v1alpha1.CronConnector) { c.Schedule = "0 0 30 2 *" },
			"spec.cron.timeZone must be the IANA":  func(c *v1alpha1.CronConnector) { c.TimeZone = "Mars/Phobos" },
			"spec.cron.payload must keep the inpu": func(c *v1alpha1.CronConnector) { c.Payload.Raw = []byte(`{"a":"` + strings.Repeat("x", 64<<10) + `"}`) },
		} {
			c.Spec.Cron = (&v1alpha1.CronConnector{Schedule: "0 3 * * *", Prompt: "Report", Payload: &runtime.RawExtension{Raw: []byte(`{"a":1}`)}}).DeepCopy()
			change(c.Spec.Cron)
			s.reconciled(ctx, c)
			Expect(State(c)).To(Equal("Ready=False/InvalidSpec Stalled observed"), field)
			Expect(Message(c)).To(ContainSubstring(field))
			Expect(s.row(ctx, c).Config).To(MatchJSON(right), field)
		}
		nightly(c)
		s.reconciled(ctx, c)
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
	})
})
