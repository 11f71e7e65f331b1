// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"encoding/json"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("The telemetry of a Project", func() {
	It("reaches the store with sealed headers, once its Secret exists", func(ctx SpecContext) {
		s := newScene()
		p := s.ready(ctx, func(p *v1alpha1.Project) {
			p.Spec.Telemetry = &v1alpha1.ProjectTelemetry{OTLP: &v1alpha1.OTLPExport{
				Endpoint: "https://otlp.example.com", HeadersSecretRef: &v1alpha1.SecretReference{Name: "otlp"},
				Content: v1alpha1.TelemetryContentRedacted, SamplePercent: ptr.To[int32](25), Environments: []v1alpha1.EnvironmentName{"production"},
			}}
		})
		id := s.ProjectID(s.Namespace)
		Expect(Message(p)).To(Equal(`spec.telemetry.otlp.headersSecretRef: Secret "otlp" does not exist; until then, no traces are exported`))
		Expect(s.Store.ProjectTelemetry(ctx, id)).To(BeNil())

		secret := s.Secret("otlp", map[string]string{"Authorization": "a\nb"})
		s.ExpectApplied(ctx, secret)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(Message(p)).To(ContainSubstring("a line break"))
		Expect(s.Store.ProjectTelemetry(ctx, id)).To(BeNil())

		secret.Data = map[string][]byte{"Authorization": []byte("tok3n")}
		s.ExpectApplied(ctx, secret)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(Message(p)).NotTo(ContainSubstring("telemetry"))
		stored, err := s.Store.ProjectTelemetry(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		plain, err := s.Keys.Open(secrets.TelemetryField(id), stored.SealedHeaders)
		Expect(err).NotTo(HaveOccurred())
		headers := map[string]string{}
		Expect(json.Unmarshal(plain, &headers)).To(Succeed())
		Expect(headers).To(Equal(map[string]string{"Authorization": "tok3n"}))
		Expect(string(stored.SealedHeaders)).NotTo(ContainSubstring("tok3n"))
		Expect(*stored).To(Equal(store.Telemetry{
			Endpoint: "https://otlp.example.com", WithContent: true, SamplePercent: 25,
			Environments:  []uuid.UUID{v1alpha1.ProjectObjectID(id, "Environment", "production")},
			SealedHeaders: stored.SealedHeaders, SealedKey: stored.SealedKey,
		}))

		By("keeping the ciphertext while the headers are the same")
		s.ExpectAtRest(ctx, s.r, p)
		Expect(s.Store.ProjectTelemetry(ctx, id)).To(Equal(stored))

		By("removing it")
		p.Spec.Telemetry = nil
		s.ExpectApplied(ctx, p)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(s.Store.ProjectTelemetry(ctx, id)).To(BeNil())
	})

	It("is not stored with an endpoint that no client can parse", func(ctx SpecContext) {
		for _, endpoint := range []string{"https://otlp.example.com:port", "https://[otlp", "https://otlp.example.com/\x00"} {
			s := newScene()
			p := s.ready(ctx, func(p *v1alpha1.Project) {
				p.Spec.Telemetry = &v1alpha1.ProjectTelemetry{OTLP: &v1alpha1.OTLPExport{Endpoint: endpoint}}
			})
			Expect(Message(p)).To(Equal("spec.telemetry.otlp.endpoint: it is not a valid URL; correct it; until then, no traces are exported"))
			Expect(s.Store.ProjectTelemetry(ctx, s.ProjectID(s.Namespace))).To(BeNil())
		}
	})

	It("has defaults", func(ctx SpecContext) {
		s := newScene()
		s.ready(ctx, func(p *v1alpha1.Project) {
			p.Spec.Telemetry = &v1alpha1.ProjectTelemetry{OTLP: &v1alpha1.OTLPExport{Endpoint: "https://otlp.example.com"}}
		})
		Expect(s.Store.ProjectTelemetry(ctx, s.ProjectID(s.Namespace))).To(Equal(&store.Telemetry{Endpoint: "https://otlp.example.com", SamplePercent: 100}))
	})
})
