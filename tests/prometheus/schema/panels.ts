// What a dashboard of this project may be: Grafana's own types, with each panel's options and field options by its type.
// check.mjs says where @grafana/schema is, once for each version.

import type { Dashboard, DataQuery, DataSourceRef, FieldConfigSource, Panel, RowPanel } from '@grafana/schema';
import type * as heatmap from '@grafana/schema/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type * as stat from '@grafana/schema/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type * as xychart from '@grafana/schema/raw/composable/xychart/panelcfg/x/XYChartPanelCfg_types.gen';

// In JSON an enumeration's member is its string.
type Json<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Json<T[K]> } : T;

// A bag of anything would take every misspelt key; only unknown's own place stays open.
type Closed<T> = { [K in keyof T as string extends K ? never : K]: T[K] };

interface Target extends Pick<DataQuery, 'refId'> {
    datasource: DataSourceRef;
    editorMode: 'code';
    expr: string;
    legendFormat: string;
    format: 'time_series' | 'heatmap' | 'table';
    range: boolean;
    instant: boolean;
}

type Defaults<Custom> = Omit<FieldConfigSource['defaults'], 'custom' | 'unit'> & { unit: string; custom?: Closed<Custom> };

interface Of<Type extends string, Options, Custom> extends Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> {
    type: Type;
    title: string;
    description: string;
    datasource: DataSourceRef;
    options: Options;
    fieldConfig: Omit<FieldConfigSource, 'defaults'> & { defaults: Defaults<Custom> };
    targets: [Target, ...Target[]];
}

type AnyPanel =
    | Of<'timeseries', timeseries.Options, timeseries.FieldConfig>
    | Of<'stat', stat.Options, Record<never, never>>
    | Of<'heatmap', heatmap.Options, heatmap.FieldConfig>
    | Of<'xychart', xychart.Options, xychart.FieldConfig>
    | (Omit<RowPanel, 'panels'> & { panels: [] });

export type Ours = Json<Omit<Dashboard, 'panels'>> & {
    uid: string;
    title: string;
    panels: Json<AnyPanel>[];
};
