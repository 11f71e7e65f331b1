// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/cron"
)

// CronConfig is the config of a cron connector.
type CronConfig struct {
	Schedule    string      `json:"schedule" doc:"Five cron fields, or a macro such as @hourly." example:"0 6 * * 1-5"`
	Timezone    string      `json:"timezone" doc:"The IANA name of the schedule's time zone." example:"Europe/Paris"`
	MissedTicks MissedTicks `json:"missed_ticks" doc:"What happens to ticks that could not run within five minutes."`
	Prompt      string      `json:"prompt" doc:"The task for the agents; empty if there is none."`
	Payload     rest.Object `json:"payload" doc:"Further input for the agents; an empty object if there is none."`
}

// Doc describes the type.
func (CronConfig) Doc() string { return "The configuration of a cron connector." }

// CronConfigInput is the config of a cron connector in a request.
type CronConfigInput struct {
	Schedule    string       `json:"schedule" minLength:"1" maxLength:"256" doc:"Five cron fields, or one of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly." example:"0 6 * * 1-5"`
	Timezone    *string      `json:"timezone,omitempty" maxLength:"64" doc:"The IANA name of the schedule's time zone. Default: UTC." example:"Europe/Paris"`
	MissedTicks *MissedTicks `json:"missed_ticks,omitempty" doc:"What happens to ticks that could not run within five minutes. Default: skip."`
	Prompt      *string      `json:"prompt,omitempty" maxLength:"16384" doc:"The task for the agents."`
	Payload     rest.Object  `json:"payload,omitempty" doc:"Further input for the agents, any object. Prompt and payload together have at most 64 KiB as JSON."`
}

// Doc describes the type.
func (CronConfigInput) Doc() string {
	return "The configuration of a cron connector to set. Schedules have the syntax of Kubernetes CronJobs."
}

// applyCron writes a config into the spec of a cron connector.
func applyCron(spec *v1alpha1.ConnectorSpec, config ConnectorConfigInput) error {
	if spec.Mode != v1alpha1.ModeInbound {
		return rest.InvalidField("body.mode", "must be inbound for a cron connector: leave it out")
	}
	var in CronConfigInput
	if err := decodeConfig(json.RawMessage(config), &in); err != nil {
		return err
	}
	out := &v1alpha1.CronConnector{Schedule: in.Schedule}
	if in.Timezone != nil {
		out.TimeZone = *in.Timezone
	}
	if in.Prompt != nil {
		out.Prompt = *in.Prompt
	}
	if in.MissedTicks != nil {
		if out.MissedTicks = v1alpha1.MissedTicksOf(string(*in.MissedTicks)); out.MissedTicks == "" {
			return rest.InvalidField("body.config.missed_ticks", "must be skip or latest")
		}
	}
	if in.Payload != nil {
		out.Payload = &runtime.RawExtension{Raw: json.RawMessage(in.Payload)}
	}
	var problems []rest.FieldError
	for _, field := range cron.Check(out.Schedule, out.TimeZone, out.Prompt, json.RawMessage(in.Payload)) {
		problems = append(problems, rest.FieldError{Location: "body.config." + string(field.Field), Message: field.Problem})
	}
	if len(problems) > 0 {
		return rest.Invalid(problems...)
	}
	spec.Cron = out
	return nil
}

// showCron returns the config of a cron connector with its defaults.
func showCron(spec *v1alpha1.CronConnector) CronConfig {
	out := CronConfig{
		Schedule: spec.Schedule, Timezone: spec.TimeZone, MissedTicks: MissedTicks(spec.MissedTicks.Word()), Prompt: spec.Prompt, Payload: rest.Object("{}"),
	}
	if out.Timezone == "" {
		out.Timezone = time.UTC.String()
	}
	if out.MissedTicks == "" {
		out.MissedTicks = MissedTicks(cron.MissedSkip)
	}
	if spec.Payload != nil && len(spec.Payload.Raw) > 0 {
		out.Payload = rest.Object(spec.Payload.Raw)
	}
	return out
}

// showTicks fills in the last and the next tick of cron connectors, with one query for all.
func (s *API) showTicks(ctx context.Context, c *rest.Caller, _ []v1alpha1.Connector, shown []*Connector) error {
	var ids []uuid.UUID
	for _, out := range shown {
		if id, err := uuid.Parse(out.ID); err == nil && out.Type == rest.ConnectorType(v1alpha1.ConnectorCron) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	times, err := s.Store.TickTimes(ctx, c.ProjectID, ids)
	if err != nil {
		return fmt.Errorf("reading when connectors tick: %w", err)
	}
	for _, out := range shown {
		config, isCron := out.Config.Value.(CronConfig)
		id, err := uuid.Parse(out.ID)
		if err != nil || !isCron {
			continue
		}
		ticks := times[id]
		out.LastTickAt = rest.OptionalTime(ticks.Last)
		next := ticks.Next
		if !ticks.Planned { // the gateway adds the row in a moment
			schedule, err := cron.Parse(config.Schedule, config.Timezone)
			if err != nil {
				continue
			}
			next = schedule.Next(ticks.Next)
		}
		if ticks.Active && !next.IsZero() {
			out.NextTickAt = rest.OptionalTime(&next)
		}
	}
	return nil
}
