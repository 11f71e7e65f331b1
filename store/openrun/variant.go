// SPDX-License-Identifier: Apache-2.0

package openrun

// ReportedVariant returns SQL for the A/B variant that executes a run. run is the row, said is the name
// that the runner reported. The first reported name stays, and a name counts only if the run's
// deployment has that variant of the run's agent.
func ReportedVariant(run, said string) string {
	return `CASE WHEN ` + said + ` = '' OR ` + run + `.test_name <> '' THEN ` + run + `.test_name
		WHEN EXISTS (SELECT 1 FROM deployment_agents v WHERE v.project_id = ` + run + `.project_id AND v.deployment_id = ` + run + `.deployment_id
			AND v.variant_of = ` + run + `.agent_name AND v.test_name = ` + said + `) THEN ` + said + ` ELSE '' END`
}
