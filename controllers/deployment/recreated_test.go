// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A Deployment that is re-created while the earlier one is reconciled", func() {
	It("gets no status of the earlier one", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		s.ExpectBuilt(ctx, s.Key(d), "hello")
		replacement := s.ExpectReplaced(ctx, s.r, d)
		Expect(replacement.Status.Phase).To(BeEmpty())
		Expect(replacement.Status.Conditions).To(BeEmpty())
	})
})
